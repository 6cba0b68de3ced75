"""How much memory the allocations of a job come to, and what it is taken by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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
    most = max(_live(memory), default=(0, 0))
    return Peak(most[0], _roles_at(memory, -most[1]), -most[1])


def _live(memory: Memory) -> Iterator[tuple[int, int]]:
    """Bytes alive after each event, and its position; negative, so that the first of equals is the largest."""
    sizes, total = [0], 0
    for at, event in enumerate(memory.events):
        if event > 0:
            sizes.append(event)
        total += event if event > 0 else -sizes[-event]
        yield total, -at


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
