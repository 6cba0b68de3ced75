"""Memory of this process, as the kernel counts it (Linux)."""

from __future__ import annotations

import resource
from pathlib import Path

_PAGE = resource.getpagesize()
_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Bytes in physical memory; 0 where /proc does not show this process, or no file can be opened."""
    return _column(1)


def data_bytes() -> int:
    """Size of the data segment, which RLIMIT_DATA limits; 0 where /proc does not show this process."""
    return _column(5)


def _column(number: int) -> int:
    try:
        return int(_STATM.read_bytes().split()[number]) * _PAGE
    except OSError:
        return 0
