"""`uv run [options] script.py`, `uv run python script.py`: a command in the environment of a uv project."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pharoah._errors import UnknownReason
from pharoah.launchers._launcher import Launcher, launch_of, parse_valued_options, split
from pharoah.launchers._program import Launch, Program
from pharoah_system.bounded_reading import read_text

_VALUED = parse_valued_options(
    "C cache-dir color config-file config-setting default-index directory env-file exclude-newer extra "
    "extra-index-url f find-links fork-strategy group i index index-strategy index-url keyring-provider link-mode "
    "no-binary-package no-build-isolation-package no-build-package no-extra no-group only-group P p package "
    "prerelease project python python-platform refresh-package reinstall-package resolution upgrade-package w "
    "with with-editable with-requirements"
)
"""Options with a value (`uv run --help`, uv 0.9)."""
_OTHER_PACKAGES = ("w", "with", "with-editable", "with-requirements", "isolated")
"""Options that make an environment for this one run."""
_VARIABLE = re.compile(r"""\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(?:(["'])(.*?)\2|(.*?))\s*(?:\s#.*)?$""")
"""A line of a file with variables: `NAME=VALUE`, `export NAME="VALUE"  # why`."""
_INLINE_METADATA = "# /// script"
"""Begins the requirements of a script (PEP 723), for which uv makes an environment."""


def _launch(words: Sequence[str]) -> Launch:
    if list(words[1:2]) != ["run"]:
        raise UnknownReason("cannot dry-run `uv ...`: only `uv run` starts a job")
    options, command = split(words[1:], _VALUED)
    if made := [name for name in _OTHER_PACKAGES if name in options]:
        raise UnknownReason(f"cannot dry-run `uv run --{made[0]}`: uv makes its environment only when it runs")
    folder = options.get("directory")
    python = _python(Path(options.get("project") or folder or "."))
    bin_folder = Path(python).parent
    path = os.pathsep.join((str(bin_folder), os.environ.get("PATH", os.defpath)))
    variables = _variables_of_files(options.get("env-file", ""), folder or ".")
    variables |= {"PATH": path, "VIRTUAL_ENV": str(bin_folder.parent)}
    if "m" in options or "module" in options:
        command = ["python", "-m", *command]  # the module may be a launcher
    elif command and (command[0].endswith(".py") or "s" in options or "script" in options):
        _refuse_own_requirements(Path(folder or ".", command[0]))
        return Launch(python, Program(tuple(command)), variables=variables, folder=folder)
    return replace(launch_of(command), python=python).within(variables, folder=folder)


def _variables_of_files(files: str, folder: str) -> dict[str, str]:
    """Variables of the files of `--env-file`, where a later file wins over an earlier one, and the environment over
    both. A value is not expanded. Raises UnknownReason for a file that cannot be read."""
    found = dict[str, str]()
    for file in filter(None, files.split("\0")):
        try:
            lines = read_text(Path(folder, file)).splitlines()
        except (OSError, ValueError) as error:
            what = getattr(error, "strerror", None) or error
            raise UnknownReason(f"cannot dry-run `uv run --env-file {file}`: {what}") from None
        found |= {match[1]: match[3] if match[2] else match[4] for match in map(_VARIABLE.match, lines) if match}
    return {name: value for name, value in found.items() if name not in os.environ}


def _python(project: Path) -> str:
    """The interpreter of the project's environment. Raises UnknownReason before `uv sync` has made it."""
    for place in _environments(project):
        if (python := place / "bin" / "python").exists():
            return str(python)
    raise UnknownReason("cannot dry-run `uv run`: the project has no environment yet; `uv sync` makes it")


def _environments(project: Path) -> Iterator[Path]:
    named = os.environ.get("UV_PROJECT_ENVIRONMENT")
    for folder in (project.resolve(), *project.resolve().parents):
        yield folder / (named or ".venv")
    if active := os.environ.get("VIRTUAL_ENV"):
        yield Path(active)


def _refuse_own_requirements(script: Path) -> None:
    try:
        has_metadata = _INLINE_METADATA in script.read_text(errors="replace")
    except OSError:
        return  # the script itself will be the reason
    if has_metadata:
        raise UnknownReason(f"cannot dry-run `uv run {script.name}`: uv makes the script's environment when it runs")


UV = Launcher("uv", "a command in the environment of a uv project", ("uv",), _launch)
