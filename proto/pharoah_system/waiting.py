"""Becoming a small process that waits for a child: `waiter.c`, else `waiter.py` (ADR 67)."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent
_NAME = "pharoah run"
"""What `ps` shows of the waiter."""


class Waiter(NamedTuple):
    """A program that can wait, with its first arguments."""

    program: str
    arguments: tuple[str, ...] = ()


def become_waiter(
    child: int, signals: Collection[int], asked_nanoseconds: int, command: Sequence[str], environ: Mapping[str, str]
) -> None:
    """Replace this process by one that passes `signals` on to a child, and becomes `command` when that has ended.

    `signals` and SIGCHLD must be blocked. `asked_nanoseconds` is when the child was first asked to end, since 1970; 0
    for never. The command gets two more words: the wait status, and when the child was first asked to end. Returns only
    where no waiter can be started.
    """
    mask = sum(1 << number - 1 for number in signals)
    words = [str(child), f"{mask:x}", str(asked_nanoseconds), *command]
    for program, arguments in waiters():
        with contextlib.suppress(OSError):
            os.execve(program, [_NAME, *arguments, *words], dict(environ))


def waiters() -> Iterator[Waiter]:
    """The programs that can wait here, the smallest first."""
    yield Waiter(str(_FOLDER / f"waiter-{platform.machine()}"))
    in_python = _FOLDER / "waiter.py"
    if sys.executable and in_python.is_file():  # else the interpreter would start, and end
        yield Waiter(sys.executable, ("-I", "-S", "-B", str(in_python)))


def block(signals: Collection[int]) -> None:
    """Keep these signals and SIGCHLD for whoever waits for them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {*signals, signal.SIGCHLD})
