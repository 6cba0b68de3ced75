"""Memory that was freed and stays resident, because a small block that is in use is on every page of it."""

from __future__ import annotations

import ctypes

from pharoah_benchmarks.faults._fault import Dose, Effect, Fault, FaultError, Schedule
from pharoah_benchmarks.micro import Resource

_BLOCK_BYTES, _KEPT_BYTES = 4096, 64
"""A page, and what stays in use of it: a 64th. The hole between two of them is too small for the next block."""
_HEADER_BYTES = 16
"""What the C library of GNU adds to a block on machines of 64 bits."""
_MAX_BLOCKS = 4096
"""Blocks of one step, 16 MiB: a call of the C library through ctypes takes about a microsecond."""


class _Fragmentation(Effect):
    """Allocates blocks, writes them, and shrinks each to a 64th where it is."""

    def __init__(self, schedule: Schedule) -> None:
        self._libc = ctypes.CDLL(None)
        if not hasattr(self._libc, "realloc"):
            raise FaultError("the C library of this process has no realloc")
        self._libc.realloc.restype = ctypes.c_void_p
        self._libc.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._libc.free.argtypes = [ctypes.c_void_p]
        self._schedule = schedule
        self._kept: list[int] = []

    def after_step(self) -> None:
        """Fragment what is owed. Raises MemoryError at the memory limit."""
        owed = int(self._schedule.amount() / _BLOCK_BYTES) - len(self._kept)
        for _ in range(min(owed, _MAX_BLOCKS)):
            block = self._libc.realloc(None, _BLOCK_BYTES - _HEADER_BYTES)
            if not block:
                raise MemoryError
            ctypes.memset(block, 1, _BLOCK_BYTES - _HEADER_BYTES)
            if self._kept:  # the block before: what the last one of a heap has to spare goes to the next one
                self._kept[-1] = self._libc.realloc(self._kept[-1], _KEPT_BYTES - _HEADER_BYTES)
            self._kept.append(block)

    def end(self) -> None:
        for block in self._kept:
            self._libc.free(block)


FAULT = Fault(
    name="allocator_fragmentation",
    help="the process allocates pages and shrinks each to a small block: the heap of the C library keeps the pages, "
    "although a 64th is in use. Free pages of the heap are used up first, so that growth begins later",
    resource=Resource.MEMORY_CAPACITY,
    dose=Dose(unit="bytes per second that become holes", least=1e4, most=1e9, examples=(40e6, 160e6)),
    inside=lambda place: _Fragmentation(place.schedule),
    room_bytes=400_000_000,
)
