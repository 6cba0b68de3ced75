"""Memory of this process, as the kernel counts it (Linux)."""

from __future__ import annotations

import resource
from pathlib import Path

_PAGE = resource.getpagesize()
_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Bytes in physical memory."""
    return int(_STATM.read_bytes().split()[1]) * _PAGE


def data_bytes() -> int:
    """Bytes of the data segment, which RLIMIT_DATA limits."""
    return int(_STATM.read_bytes().split()[5]) * _PAGE
