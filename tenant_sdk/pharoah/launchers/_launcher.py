"""Launchers: programs that start a Python program, directly or as the ranks of a job.

Our launchers are the modules of `pharoah.launchers`, one each. Other distributions add theirs in the entry-point group
`pharoah.launchers`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pharoah._errors import UnknownReason
from pharoah.launchers._program import Launch, Program
from pharoah_protocol.registry import Registry

GROUP = "pharoah.launchers"
_PYTHONS = ("python", "python3")
"""Names of interpreters, the usual one first; distributions of Linux have the second one only."""
_MAX_LINE_LENGTH = 4096
"""Bytes of a line that are read of a script; the kernel reads 256 (Linux, BINPRM_BUF_SIZE)."""
_BEGINS_LONG_PATH = "'''exec' "
"""Begins the second line of a script of pip whose interpreter has a path that is too long for the kernel, or has spaces
in it: the shell starts the interpreter then (distlib, scripts.py)."""

FirstProcess = Callable[[Program], Program]


def _nothing_to_parse(program: Program) -> Program:
    return program


@dataclass(frozen=True)
class Launcher:
    """One launcher. Raises ValueError when it starts nothing."""

    name: str
    """What messages call it."""
    help: str
    """What it starts, in a few words."""
    programs: tuple[str, ...]
    """Names of its programs, without folders."""
    launch: Callable[[Sequence[str]], Launch]
    """What a command line of it starts; the first word is the program. Raises UnknownReason, but not for what the
    launcher's own parser reports."""
    modules: tuple[str, ...] = ()
    """Modules that `python -m` runs as this launcher. `launch` then gets the module's name as its first word."""
    first_process: FirstProcess = _nothing_to_parse
    """Parses the launcher's arguments by its own library, in the child of a dry run: the program that it starts, with
    the number of processes. It may set variables. Raises UnknownReason."""
    starts_commands: bool = False
    """Whether it runs several commands, each of which may be a launcher, and only running it shows which: a shell."""
    uses_path: bool = False
    """Whether it starts the program that its command names, as the search path has it, and changes nothing else."""

    def __post_init__(self) -> None:
        if not self.programs:
            raise ValueError(f"launcher {self.name!r}: names no program")


class Parsed(NamedTuple):
    """A command line of a launcher, split by its options."""

    options: dict[str, str]
    """Name or letter to value, which is empty for a flag. Values of an option that is repeated are joined by NUL."""
    command: list[str]
    """What comes after the options."""


@cache
def launchers() -> Registry[Launcher]:
    """All launchers, ours and those of other distributions. Raises RegistryError when it is read."""
    return Registry(Launcher, "pharoah.launchers", GROUP)


def launch_of(command: Sequence[str]) -> Launch:
    """Recognise a command line that starts a Python program. Raises UnknownReason for every other command."""
    name = Path(command[0]).name if command else ""
    for launcher in launchers():
        if name in launcher.programs:
            return launcher.launch(command)
    if name.startswith("python"):  # python3.12, python3-dbg
        return launchers()["python"].launch(command)
    if name.endswith((".sh", ".bash")):
        return launchers()["shell"].launch(command)
    if name.endswith(".py"):
        return _launch_of_script(command)
    what = f"`{name}` is not a program" if name else "there is no command"
    raise UnknownReason(f"{what} that a dry run can follow; docs/registries.md lists the launchers")


def _launch_of_script(command: Sequence[str]) -> Launch:
    """A script that is executed by its first line: its interpreter, or `env` with one. Raises UnknownReason."""
    script, by = shutil.which(command[0]) or command[0], _first_line(command[0])
    if not by or by[0].endswith(".py"):
        by = [_any_python()]
    return launch_of([*by, script, *command[1:]])


def module_launcher(module: str) -> Launcher | None:
    """The launcher that `python -m MODULE` is; None for a module that is a program itself."""
    return next((launcher for launcher in launchers() if module in launcher.modules), None)


def program_launcher(script: str) -> Launcher | None:
    """The launcher that a script of Python is, such as `/opt/env/bin/torchrun`; None for every other script."""
    own = (launcher for launcher in launchers() if not launcher.uses_path and not launcher.starts_commands)
    return next((launcher for launcher in own if Path(script).name in launcher.programs), None)


def parse_valued_options(names: str, words: int = 1) -> dict[str, int]:
    """Options with a value for `split`: names or letters with spaces between them, each with so many words."""
    return dict.fromkeys(names.split(), words)


def split(words: Sequence[str], valued: Mapping[str, int], *, one_dash_names: bool = False) -> Parsed:
    """Split a command line of a launcher: the first word that is no option begins the command.

    `valued` has the options with values, letters and names, and how many words they are; what is not in it is a flag.
    With `one_dash_names` names may follow one dash (`-np 4`). Raises UnknownReason without a command.
    """
    options, rest = dict[str, str](), list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and not one_dash_names and len(word) > 2 and valued.get(word[1]):
            name, value = word[1], word[2:]  # `-N2`
        elif not equals and (count := valued.get(name, 0)):
            value, rest = " ".join(rest[:count]), rest[count:]
        options[name] = f"{options[name]}\0{value}" if name in options else value
    if not rest:
        raise UnknownReason(f"cannot dry-run `{' '.join(words[:3])} ...`: there is no command in it")
    return Parsed(options, rest)


def numbers_its_ranks(program: Program) -> bool:
    """Whether a program is a launcher that starts ranks, such as torchrun below srun: then they are the ranks of the
    job. Below a shell it may still be any program."""
    return bool(program.launcher) and not launchers()[program.launcher].starts_commands


def python_beside(program: str) -> str:
    """The interpreter that an installed program belongs to: the one that its first line names, else the one beside it.
    A link to a program leads to the folder of that program first."""
    first = _first_line(program)
    for word in (*first, *" ".join(first).split()):
        if Path(word).name.startswith(("python", "pypy")) and shutil.which(word):
            return word
    path = Path(shutil.which(program) or program)
    beside = [folder / name for folder in (path.resolve().parent, path.parent) for name in _PYTHONS]
    return next((str(python) for python in beside if python.exists()), _any_python())


def _any_python() -> str:
    return next(filter(shutil.which, _PYTHONS), _PYTHONS[0])


def _first_line(script: str) -> list[str]:
    """The words by which the kernel executes a script, without the script: after `#!` a program, and one argument at
    most (execve(2)). Empty where the script has no such line."""
    try:
        with Path(shutil.which(script) or script).open("rb") as file:
            first, second = (os.fsdecode(file.readline(_MAX_LINE_LENGTH)) for _ in range(2))
    except OSError:
        return []
    if first.startswith("#!/bin/sh") and second.startswith(_BEGINS_LONG_PATH):
        return [second.removeprefix(_BEGINS_LONG_PATH).rpartition(' "$0"')[0].strip("\"'")]
    words = first.removeprefix("#!").strip().split(maxsplit=1)
    return words if first.startswith("#!") else []
