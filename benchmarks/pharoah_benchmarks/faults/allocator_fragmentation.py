"""Memory that was freed and stays resident, because a small block that is in use is on every page of it."""

from __future__ import annotations

import ctypes

from pharoah_benchmarks.faults._fault import Dose, Effect, Fault, FaultError, Resource, Schedule

_PAGE_BYTES = 4096
_KEPT_BYTES = 64
"""What stays in use of each page: a 64th."""
_MOST_PAGES = 4096
"""Pages of one step, 16 MiB: a call of malloc through ctypes takes about a microsecond."""


class _Fragmentation(Effect):
    """Allocates pairs of a page and a small block, and frees the pages: what remains are holes that no tensor fits."""

    def __init__(self, schedule: Schedule) -> None:
        self._libc = ctypes.CDLL(None)
        if not hasattr(self._libc, "malloc"):
            raise FaultError("the C library of this process has no malloc")
        self._libc.malloc.restype, self._libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self._libc.free.argtypes = [ctypes.c_void_p]
        self._schedule = schedule
        self._pages = 0
        self._kept: list[int] = []

    def after_step(self) -> None:
        """Fragment what is owed. Raises MemoryError at the memory limit."""
        wanted = int(self._schedule.amount() / _PAGE_BYTES)
        large: list[int] = []
        while self._pages < wanted and len(large) < _MOST_PAGES:
            large.append(self._allocated(_PAGE_BYTES - _KEPT_BYTES))
            self._kept.append(self._allocated(_KEPT_BYTES - 16))  # glibc adds 16 bytes of its own to a block
            self._pages += 1
        for block in large:
            self._libc.free(block)

    def _allocated(self, size: int) -> int:
        block = self._libc.malloc(size)
        if not block:
            raise MemoryError
        ctypes.memset(block, 1, size)
        return int(block)

    def end(self) -> None:
        for block in self._kept:
            self._libc.free(block)


FAULT = Fault(
    name="allocator_fragmentation",
    help="the process allocates pages and small blocks in turn and frees the pages: the heap of the C library keeps "
    "them all, although a 64th is in use. What fits into a hole can use it again; tensors above 4 KB do not",
    resource=Resource.MEMORY_CAPACITY,
    dose=Dose(unit="bytes per second that become holes", least=1e4, most=1e9, examples=(20e6, 80e6)),
    inside=lambda place: _Fragmentation(place.schedule),
    room_bytes=400_000_000,
)
