"""A dry run of a shell script: the shell runs in the sandbox, and the Python programs that it starts are dry-run.

The search path begins with a folder of small programs, one for each name of a launcher. Each finds out what its command
line starts and becomes the child of a dry run (`pharoah.dryrun.shell_program`). The first program that makes a training
step gives the result; what a program before it has written is there for those that follow.

A script may put a folder of its own in front of the search path, as the activation of an environment does it. So bash
gets a function of each name as well, which it calls before it searches. A script may also name the folder of an
interpreter (`/opt/env/bin/python train.py`). So each interpreter finds a `sitecustomize` in the same folder, by
PYTHONPATH, which starts that small program in its place where torch and pharoah are installed. What it does not see are
interpreters that ignore PYTHONPATH. Installed programs such as `pip` run as without us, unless they are launchers.

Runs in the dry-run child only.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pharoah._errors import UnknownReason
from pharoah.dryrun.late_path import search_as_the_job, start_code
from pharoah.dryrun.reports import Report, reporting
from pharoah.dryrun.sandbox_mode import Sandbox
from pharoah.launchers import Program, launchers
from pharoah_system.parent_process import end_with_parent

SHELL = "PHAROAH_DRY_RUN_SHELL"
"""What the programs that the shell starts must know, as `InsideShell.to_json` writes it."""
_PROGRAM = "pharoah.dryrun.shell_program"
_SITECUSTOMIZE = """\
import importlib.util, os, sys
folder, start, launchers, words = {folder!r}, {start!r}, {launchers!r}, getattr(sys, "orig_argv", [])
beside = [word for word in words[1:3] if "/" in word and os.path.dirname(word) == os.path.dirname(words[0])]
is_tool = any(os.path.basename(word) not in launchers and not word.endswith(".py") for word in beside)
if words and start[-1] not in words and not is_tool:
    if all(importlib.util.find_spec(name) for name in ("torch", "pharoah")):
        os.execv(start[0], start + words)
sys.path[:] = [entry for entry in sys.path if entry != folder]
sys.path_importer_cache.pop(folder, None)
sys.modules.pop("sitecustomize", None)
import sitecustomize
"""
"""What an interpreter runs that was started by its path: our own interpreter in its place, which gets its command line.
One that cannot train goes on as without us, with its own `sitecustomize` if it has one: conda's interpreter prints what
`conda activate` does."""
_FUNCTION = ("BASH_FUNC_", "%%")
"""Beginning and end of a variable by which bash gives a function to the shells below it (bash 4.3, variables.c)."""


class InsideShell(NamedTuple):
    """The dry run that a shell belongs to."""

    results: int
    """The open file for the report."""
    deadline: float
    """When the parent ends everything, on the steady clock of the machine."""
    sandbox: str
    """As `Sandbox.to_json` writes it."""
    folder: str
    """The folder at the beginning of the search path and of PYTHONPATH."""
    has_python_path: bool = False
    """Whether PYTHONPATH had other folders when the shell was started."""

    def to_json(self) -> str:
        return json.dumps(self)

    @classmethod
    def from_environment(cls) -> InsideShell | None:
        """None outside of a shell."""
        data: Any = json.loads(os.environ.get(SHELL, "null"))
        return None if data is None else cls(*data)

    def leave(self) -> None:
        """Take out of the environment what leads to our programs: what is started from here on is the real one."""
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        os.environ["PATH"] = os.pathsep.join(folder for folder in folders if folder != self.folder)
        folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        # A script that adds to an empty PYTHONPATH (`$PWD:$PYTHONPATH`) leaves an empty entry, this folder.
        entries = ["" if folder == self.folder and not self.has_python_path else folder for folder in folders]
        os.environ["PYTHONPATH"] = os.pathsep.join(folder for folder in entries if folder != self.folder)
        if not os.environ["PYTHONPATH"]:
            del os.environ["PYTHONPATH"]
        for name, value in list(os.environ.items()):
            if name.startswith(_FUNCTION[0]) and f"{self.folder}/" in value:
                del os.environ[name]


def run_shell(results: int, program: Program, seconds: float, sandbox: Sandbox) -> None:
    """Run a shell until one of its programs has reported a step, or it ends. Never returns and never raises."""
    report = Report(results)
    with reporting(report):
        end_with_parent()
        if not sandbox.is_isolated:
            refused = f": {sandbox.refused}" if sandbox.refused else ""
            raise UnknownReason(f"a shell can be followed only in a sandbox with namespaces{refused}")
        search_as_the_job()
        folder = tempfile.mkdtemp(prefix="pharoah-programs-")
        functions = _make_programs(Path(folder))
        has_python_path = bool(os.environ.get("PYTHONPATH"))
        inside = InsideShell(results, time.monotonic() + seconds, sandbox.to_json(), folder, has_python_path)
        paths = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        paths = {name: os.pathsep.join(filter(None, (folder, path))) for name, path in paths.items()}
        code = _wait_for(program, {**functions, **paths, SHELL: inside.to_json()}, results)
        report.reason(f"nothing that `{shlex.join(program.arguments)}` started made a training step (exit code {code})")


def _wait_for(program: Program, variables: Mapping[str, str], results: int) -> int:
    try:
        shell = subprocess.Popen(
            program.arguments, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, pass_fds=(results,)
        )
    except OSError as error:
        raise UnknownReason(f"{program.arguments[0]}: {error.strerror}") from None
    return shell.wait()


def _make_programs(folder: Path) -> dict[str, str]:
    """One for each name under which a Python program may be started. Gives the variables by which bash has a function
    for each of them."""
    names = {name for launcher in launchers() if not launcher.uses_path for name in launcher.programs}
    for place in filter(None, os.environ.get("PATH", os.defpath).split(os.pathsep)):
        names.update(path.name for path in Path(place).glob("python3.*") if path.name[8:].isdigit())
    start = [sys.executable, "-P", "-c", start_code(_PROGRAM)]
    for name in names:
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(start)} {shlex.quote(name)} "$@"\n')
        path.chmod(0o700)
    (folder / "sitecustomize.py").write_text(
        _SITECUSTOMIZE.format(folder=str(folder), start=start, launchers=sorted(names))
    )
    begins, ends = _FUNCTION
    return {f"{begins}{name}{ends}": f'() {{ {shlex.quote(str(folder / name))} "$@"; }}' for name in names}
