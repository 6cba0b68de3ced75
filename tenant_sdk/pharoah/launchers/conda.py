"""`conda run [-n NAME] command`, also of mamba and micromamba: a command in an environment of conda."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pharoah._errors import UnknownReason
from pharoah.launchers._launcher import Launcher, launch_of, parse_valued_options, split
from pharoah.launchers._program import Launch

_VALUED = parse_valued_options("n name p prefix cwd r root-prefix e env a attach")
_BASE = "base"
"""The environment that conda itself is in."""
_ROOTS = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda")
"""Folders in a home where installers put conda, in their default."""


def _launch(words: Sequence[str]) -> Launch:
    if list(words[1:2]) != ["run"]:
        raise UnknownReason(f"cannot dry-run `{Path(words[0]).name} ...`: only `run` starts a job")
    options, command = split(words[1:], _VALUED)
    roots = list(_roots(options.get("r") or options.get("root-prefix"), words[0]))
    prefix = _prefix(options.get("p") or options.get("prefix"), options.get("n") or options.get("name"), roots)
    path = os.pathsep.join((f"{prefix}/bin", os.environ.get("PATH", os.defpath)))
    variables = {"PATH": path, "CONDA_PREFIX": str(prefix)}
    return replace(launch_of(command), python=f"{prefix}/bin/python").within(variables, folder=options.get("cwd"))


def _prefix(path: str | None, name: str | None, roots: Sequence[Path]) -> Path:
    """The folder of an environment. Raises UnknownReason where it cannot be found."""
    if path:
        found = [Path(path)]
    elif name == _BASE:
        found = [root for root in roots if (root / "conda-meta").is_dir()]
    elif name:
        folders = filter(None, os.environ.get("CONDA_ENVS_PATH", "").split(os.pathsep))
        found = [folder / name for folder in (*map(Path, folders), *(root / "envs" for root in roots))]
    else:
        found = [Path(root) for root in (os.environ.get("CONDA_PREFIX"),) if root]
    for folder in found:
        if (folder / "bin" / "python").exists():
            return folder
    raise UnknownReason(f"cannot dry-run `conda run`: there is no environment {name or path or 'that is active'}")


def _roots(given: str | None, program: str) -> Iterator[Path]:
    """Where conda may be installed, the likeliest place first. It is the environment `base` itself, and the others are
    in its folder `envs`."""
    active = os.environ.get("CONDA_PREFIX") if os.environ.get("CONDA_DEFAULT_ENV") == _BASE else None
    for root in (given, active, os.environ.get("MAMBA_ROOT_PREFIX"), os.environ.get("CONDA_ROOT")):
        if root:
            yield Path(root)
    for executable in (os.environ.get("CONDA_EXE"), shutil.which(program)):
        if executable:
            yield Path(executable).resolve().parent.parent
    for name in _ROOTS:
        yield Path.home() / name


CONDA = Launcher("conda", "a command in an environment of conda or mamba", ("conda", "mamba", "micromamba"), _launch)
