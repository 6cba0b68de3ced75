"""Calls of the Linux kernel that Python's standard library does not have, through the C library."""

from __future__ import annotations

import ctypes
import os

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
"""Options of prctl(2), from linux/prctl.h."""


def prctl(option: int, value: int = 0, third: int = 0) -> int:
    """The result of prctl(2). Raises OSError."""
    return _check(_libc().prctl(option, *map(ctypes.c_ulong, (value, third, 0, 0))), f"prctl({option})")


def system_call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """The result of a system call; whole numbers are passed as 64 bits. Raises OSError."""
    passed = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _check(_libc().syscall(ctypes.c_long(number), *passed), f"system call {number}")


def refuse_new_privileges() -> None:
    """From here on, no program that is started gets privileges from its file, as a setuid program would."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def hide_memory() -> None:
    """Keep processes of the same user from reading this process through /proc."""
    prctl(_PR_SET_DUMPABLE, 0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result
