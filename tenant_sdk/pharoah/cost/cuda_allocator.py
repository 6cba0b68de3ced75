"""A model of torch's caching allocator for CUDA: the bytes that it reserves on a device for a sequence of allocations.

The rules are those of c10/cuda/CUDACachingAllocator.cpp with its default settings: sizes are rounded to 512 bytes;
allocations of up to 1 MiB come out of segments of 2 MiB, those below 10 MiB out of segments of 20 MiB, larger ones get
segments of their own, rounded to 2 MiB; the smallest free block that is large enough is taken and split; a freed block
joins its free neighbours; when the device is full, segments without a used block are released first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

_ROUND = 512
_SMALL, _SMALL_SEGMENT = 1 << 20, 2 << 20
_LARGE, _LARGE_SEGMENT, _ROUND_LARGE = 10 << 20, 20 << 20, 2 << 20


class OutOfMemory(Exception):
    """An allocation of `size` bytes that the device has no memory for, beside `reserved` bytes in use."""

    def __init__(self, size: int, reserved: int) -> None:
        super().__init__(f"no memory for {size:,} bytes beside {reserved:,}")
        self.size, self.reserved = size, reserved


def most_reserved(events: Iterable[int], capacity: int | None = None) -> int:
    """The most bytes that a process reserves on its device (`torch.cuda.max_memory_reserved`).

    `events` are those of `pharoah.cost.step.Memory`. Raises OutOfMemory when a `capacity` in bytes is not enough.
    """
    device = _Device(capacity)
    addresses = [0]
    for event in events:
        if event > 0:
            addresses.append(device.allocate(event))
        else:
            device.free(addresses[-event])
    return device.most_reserved


@dataclass(eq=False, slots=True)
class _Block:
    address: int
    size: int
    pool: list[tuple[int, int]]
    before: _Block | None = None
    after: _Block | None = None
    used: bool = False


class _Device:
    def __init__(self, capacity: int | None) -> None:
        self._capacity = capacity
        self._reserved = self.most_reserved = 0
        self._next_segment = 0
        self._small: list[tuple[int, int]] = []
        self._large: list[tuple[int, int]] = []
        """Free blocks by size and address."""
        self._blocks: dict[int, _Block] = {}

    def allocate(self, wanted: int) -> int:
        """Allocate a block of at least `wanted` bytes. Returns its address."""
        size = _round(wanted, _ROUND)
        pool = self._small if size <= _SMALL else self._large
        at = bisect_left(pool, (size, 0))
        block = self._blocks[pool.pop(at)[1]] if at < len(pool) else self._segment(size, pool)
        left = block.size - size
        if left >= _ROUND if pool is self._small else left > _SMALL:
            self._split(block, size)
        block.used = True
        return block.address

    def free(self, address: int) -> None:
        block = self._blocks[address]
        block.used = False
        for neighbour in (block.before, block.after):
            if neighbour and not neighbour.used:
                neighbour.pool.remove((neighbour.size, neighbour.address))
                block = self._join(*sorted((block, neighbour), key=lambda part: part.address))
        insort(block.pool, (block.size, block.address))

    def _segment(self, size: int, pool: list[tuple[int, int]]) -> _Block:
        taken = _SMALL_SEGMENT if size <= _SMALL else _LARGE_SEGMENT if size < _LARGE else _round(size, _ROUND_LARGE)
        if self._capacity is not None and self._reserved + taken > self._capacity:
            self._release_unused_segments()
            if self._reserved + taken > self._capacity:
                raise OutOfMemory(size, self._reserved)
        self._reserved += taken
        self.most_reserved = max(self.most_reserved, self._reserved)
        block = _Block(self._next_segment, taken, pool)
        self._next_segment += taken
        self._blocks[block.address] = block
        return block

    def _release_unused_segments(self) -> None:
        for pool in (self._small, self._large):
            for size, address in tuple(pool):
                block = self._blocks[address]
                if block.before is None and block.after is None:
                    pool.remove((size, address))
                    del self._blocks[address]
                    self._reserved -= size

    def _split(self, block: _Block, size: int) -> None:
        rest = _Block(block.address + size, block.size - size, block.pool, block, block.after)
        if block.after:
            block.after.before = rest
        block.after, block.size = rest, size
        self._blocks[rest.address] = rest
        insort(block.pool, (rest.size, rest.address))

    def _join(self, first: _Block, second: _Block) -> _Block:
        del self._blocks[second.address]
        first.size += second.size
        first.after = second.after
        if second.after:
            second.after.before = first
        return first


def _round(size: int, to: int) -> int:
    return -(-size // to) * to
