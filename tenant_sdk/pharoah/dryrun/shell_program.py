"""A Python program that a shell starts in a dry run: the module `pharoah.dryrun.shell_program`, with NAME ARGUMENTS.

Where the command line starts a program that can be dry-run, this process becomes the child of its dry run. Everything
else (`python --version`, `python -c`) runs as it would without us, inside the same sandbox.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping

from pharoah._errors import UnknownReason
from pharoah.dryrun.late_path import start_code, with_late_path
from pharoah.dryrun.shell_commands import InsideShell
from pharoah.launchers import launch_of

_CHILD = "pharoah.dryrun.child"


def main() -> None:
    """Never returns."""
    inside = InsideShell.from_environment()
    assert inside is not None
    inside.leave()
    name, *arguments = sys.argv[1:]
    program = shutil.which(name)
    command = [program or name, *arguments]
    try:
        _become_child(command, inside)
    except UnknownReason:
        pass
    if program is None:
        os._exit(127)  # a shell's code for a command that is not found
    os.execv(program, command)


def _become_child(command: list[str], inside: InsideShell) -> None:
    """Raises UnknownReason for a command line that no dry run can follow."""
    launch = launch_of(command)
    left = str(max(0.0, inside.deadline - time.monotonic()))
    given = [str(inside.results), launch.program.to_json(), left, inside.sandbox]
    python = shutil.which(launch.python) or launch.python
    environment: Mapping[str, str] = with_late_path(launch.environment())
    if launch.folder:
        os.chdir(launch.folder)
    os.execve(python, [python, *launch.options, "-P", "-c", start_code(_CHILD), *given], dict(environment))


if __name__ == "__main__":
    main()
