"""How much memory the allocations of a job come to, and what it is taken by."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from pharoah.cost.step import Memory


class Peak(NamedTuple):
    """The moment at which most bytes are allocated."""

    bytes: int
    roles: dict[str, int]
    """Role of `pharoah.cost.step` to bytes; their sum is `bytes`."""
    at: int
    """Position in the events."""


def peak(memory: Memory) -> Peak:
    """The most that is allocated at one time, from the script's start to the end of its third step.

    What allocators add for alignment and fragmentation is not in it: see `pharoah.cost.cuda`.
    """
    sizes, living, most, at = [0], 0, 0, 0
    for position, event in enumerate(memory.events):
        if event > 0:
            sizes.append(event)
        living += event if event > 0 else -sizes[-event]
        if living > most:
            most, at = living, position
    return Peak(most, _roles_at(memory, at), at)


def _roles_at(memory: Memory, position: int) -> dict[str, int]:
    sizes, living = [0], dict[int, int]()
    for event in memory.events[: position + 1]:
        if event > 0:
            sizes.append(event)
            living[len(sizes) - 1] = event
        else:
            del living[-event]
    roles: Counter[str] = Counter()
    for number, size in living.items():
        roles[memory.roles[number - 1]] += size
    return dict(roles)
