"""Starting the program of a job so that it finds everything as it would without us."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from pharoah_system.standard_streams import say

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a shell for a command that does not exist, and for one that cannot be executed."""
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these signals when it starts, and a program inherits what its parent ignores. What was set before is
not known, so they get their default again, as `subprocess` does it too."""
_SHELL = "/bin/sh"
_SET_BY_PYTHON = "LC_CTYPE"
"""Python sets it in the C locale (PEP 538), also for the programs that it starts."""


def read_given_environment() -> dict[str, str]:
    """The environment that this process was started with, and what was changed in it since, apart from what the
    interpreter has added by itself."""
    environ = dict(os.environ)
    try:
        given = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return environ
    if not any(variable.startswith(f"{_SET_BY_PYTHON}=".encode()) for variable in given):
        environ.pop(_SET_BY_PYTHON, None)
    return environ


def become(command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by a command. Ends with the exit code of a shell when that is not possible."""
    try:
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvpe(command[0], list(command), environ)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            words = by_shell(command, environ)
            os.execve(words[0], words, environ)
    except (OSError, ValueError) as error:
        os._exit(say_failed_start(command[0], error))


def by_shell(command: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The command for a file that the kernel does not execute (ENOEXEC), such as a script without a first line `#!`:
    shells and execvp(3) then give it to the shell."""
    program = command[0]
    found = None if "/" in program else shutil.which(program, path=environ.get("PATH", os.defpath))
    return [_SHELL, found or program, *command[1:]]


def say_failed_start(program: str, error: Exception) -> int:
    """Say that a program cannot be started; gives the exit code of a shell."""
    say(f"pharoah: cannot start {program}: {getattr(error, 'strerror', None) or error}")
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
