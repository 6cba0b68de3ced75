"""The peak of a job's memory, and what it consists of."""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import count
from typing import NamedTuple

from pharoah.cost.step import KERNEL, Memory


class Peak(NamedTuple):
    """The moment at which the most bytes are allocated."""

    bytes: int
    roles: dict[str, int]
    """Role of `pharoah.cost.step` to bytes; their sum is `bytes`."""
    at: int
    """Position in the events."""


def peak(memory: Memory, *, tensors_only: bool = False) -> Peak:
    """The peak from the script's start to the end of its third step.

    `tensors_only` leaves out memory that kernels allocate outside of tensors. The peak does not include what allocators
    add for alignment and fragmentation: see `pharoah.cost.cuda_allocator`.
    """
    if tensors_only:
        memory = _tensors(memory)
    sizes, living, most, at = [0], 0, 0, 0
    for position, event in enumerate(memory.events):
        if event >= 0:
            sizes.append(event)
        living += event if event >= 0 else -sizes[-event]
        if living > most:
            most, at = living, position
    return Peak(most, _roles_at(memory, at), at)


def _tensors(memory: Memory) -> Memory:
    """The same events, where allocations of kernels have no bytes."""
    numbers = count(0)
    events = (0 if event > 0 and memory.roles[next(numbers)] == KERNEL else event for event in memory.events)
    return Memory(array("q", events), memory.roles)


def _roles_at(memory: Memory, position: int) -> dict[str, int]:
    sizes, living = [0], dict[int, int]()
    for event in memory.events[: position + 1]:
        if event >= 0:
            sizes.append(event)
            living[len(sizes) - 1] = event
        else:
            del living[-event]
    roles: Counter[str] = Counter()
    for number, size in living.items():
        roles[memory.roles[number - 1]] += size
    return {role: size for role, size in roles.items() if size}
