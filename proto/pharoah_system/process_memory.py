"""Memory of a process, as the kernel counts it (Linux)."""

from __future__ import annotations

import resource

_PROC = "/proc"
_PAGE = resource.getpagesize()
_RESIDENT, _SHARED, _DATA = 1, 2, 5
"""Columns of /proc/PID/statm (proc_pid_statm(5)), in pages."""


def resident_bytes() -> int:
    """Bytes in physical memory; 0 where /proc does not show this process, or no file can be opened."""
    return _columns("self")[_RESIDENT] * _PAGE


def own_bytes(pid: int | str = "self") -> int:
    """Bytes in physical memory that end with a process: not those of files, which others may use. 0 where /proc does
    not show it."""
    columns = _columns(pid)
    return max(0, columns[_RESIDENT] - columns[_SHARED]) * _PAGE


def data_bytes() -> int:
    """Size of the data segment, which RLIMIT_DATA limits; 0 where /proc does not show this process."""
    return _columns("self")[_DATA] * _PAGE


def _columns(pid: int | str) -> list[int]:
    try:
        with open(f"{_PROC}/{pid}/statm", "rb") as file:  # noqa: PTH123 - twice a second in some processes
            return [int(column) for column in file.read().split()] or [0] * 7
    except (OSError, ValueError):
        return [0] * 7
