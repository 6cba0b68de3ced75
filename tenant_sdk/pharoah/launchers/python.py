"""`python [options] script.py`, `python -m module`, `python /opt/env/bin/torchrun`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pharoah._errors import UnknownReason
from pharoah.launchers._launcher import Launcher, module_launcher, program_launcher, python_beside
from pharoah.launchers._options import INTERPRETER_OPTIONS
from pharoah.launchers._program import Launch, Program

_KEPT_OPTIONS = "OWXb"
"""Options that can change what a program computes. The dry run passes them on; all others change output and imports."""


class _Split(NamedTuple):
    """The arguments of an interpreter."""

    kept: list[str]
    """Options to pass on."""
    program: list[str]


def _launch(words: Sequence[str]) -> Launch:
    options, program = _split(list(words[1:]))
    if program[:1] == ["-m"] and (launcher := module_launcher("".join(program[1:2]))):
        # The launcher starts its ranks without the options of its own interpreter.
        return replace(launcher.launch(program[1:]), python=words[0])
    if program and (launcher := program_launcher(program[0])):
        launch = launcher.launch(program)
        # The launcher may have chosen another environment, as `conda run -n NAME` does.
        return replace(launch, python=words[0]) if launch.python == python_beside(program[0]) else launch
    if not program or (program[0].startswith("-") and program[0] != "-m") or program == ["-m"]:
        raise UnknownReason(f"cannot dry-run `{' '.join(words[:3])} ...`: no script or module in it")
    return Launch(words[0], Program(tuple(program)), tuple(options))


def _split(rest: list[str]) -> _Split:
    kept: list[str] = []
    while rest and len(rest[0]) > 1 and (match := INTERPRETER_OPTIONS.fullmatch(rest[0])):
        letters, last, value = match.groups()
        kept += [f"-{letter}" for letter in letters if letter in _KEPT_OPTIONS]
        if last == "m":
            return _Split(kept, ["-m", *filter(None, [value]), *rest[1:]])
        if last and not value:
            value, rest = "".join(rest[1:2]), rest[1:]
        kept += [f"-{last}{value}"] if last else []
        rest = rest[1:]
    return _Split(kept, rest)


PYTHON = Launcher("python", "a script or a module", ("python", "python3", "pypy3"), _launch)
