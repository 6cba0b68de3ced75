"""The lifetimes of allocations, continued by repeating parts of what was recorded."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence

from pharoah.cost.step import (
    GRADIENT,
    KERNEL,
    OTHER,
    PARAMETER,
    STATE,
    EventKind,
    Memory,
    MemoryEvent,
    decode,
)

HOST = "h"
"""The role of memory that is not on the device."""
_MADE_ONCE = (PARAMETER, STATE, KERNEL)
"""Roles of what is allocated once and kept."""


def count_allocations(events: Sequence[int]) -> int:
    """How many of the events, coded as in `pharoah.cost.step.Memory`, are allocations."""
    return sum(event > 0 for event in events)


class Lifetimes:
    """Events that can be continued with repetitions of parts of themselves."""

    def __init__(self, events: Iterable[int], roles: dict[int, str]) -> None:
        """`roles` maps the number of an allocation to its role."""
        self._events = list(decode(events))
        self._sizes = [0, *(event.number for event in self._events if event.kind is EventKind.ALLOCATE)]
        self._roles = [roles.get(number, OTHER) for number in range(len(self._sizes))]
        alive = dict.fromkeys(range(1, len(self._sizes)))
        for event in self._events:
            if event.kind is EventKind.FREE:
                alive.pop(event.number)
        self._alive: dict[int, list[int]] = defaultdict(list)
        """Size to the allocations of that size that may be freed, the youngest last."""
        for number in alive:
            self._keep_alive(number)
        self._accumulates = any(self._roles[number] == GRADIENT for number in alive)

    def _keep_alive(self, number: int) -> None:
        if self._roles[number] not in _MADE_ONCE:
            self._alive[self._sizes[number]].append(number)

    def repeat(self, start: int, end: int) -> None:
        """Append the events between two positions once more.

        What was allocated and kept there exists already: parameters, optimizer state, gradients that accumulate. What
        was allocated before and freed there is matched by size.
        """
        repeated = self._events[start:end]
        number = sum(event.kind is EventKind.ALLOCATE for event in self._events[:start])
        freed = {event.number for event in repeated if event.kind is EventKind.FREE}
        copies: dict[int, int] = {}
        """Allocations between the two positions to their repetitions."""
        for event in repeated:
            if event.kind is EventKind.FREE:
                self._free(event.number, copies.pop(event.number, 0) or self._youngest_of_size(event.number))
                continue
            number += 1
            role = self._roles[number]
            if role in _MADE_ONCE and not (role == KERNEL and number in freed):
                continue
            copies[number] = self._allocate(number)
            if role == GRADIENT and self._accumulates:
                self._free(number, copies.pop(number))
        for copy in copies.values():
            self._keep_alive(copy)

    def _allocate(self, original: int) -> int:
        self._events.append(MemoryEvent(EventKind.ALLOCATE, self._sizes[original]))
        self._sizes.append(self._sizes[original])
        self._roles.append(self._roles[original])
        return len(self._sizes) - 1

    def _youngest_of_size(self, original: int) -> int:
        """The youngest living allocation of the same size that was made before; 0 without one."""
        candidates = self._alive[self._sizes[original]]
        return candidates.pop() if candidates else 0

    def _free(self, original: int, copy: int) -> None:
        if copy:
            self._roles[copy] = self._roles[original]
            self._events.append(MemoryEvent(EventKind.FREE, copy))

    def memory(self) -> Memory:
        """The memory of the device, without that of the host."""
        numbers, counted, events = [0], 0, array("q")
        for event in self._events:
            if event.kind is EventKind.FREE:
                if numbers[event.number]:
                    events.append(event._replace(number=numbers[event.number]).coded)
            elif self._roles[len(numbers)] == HOST:
                numbers.append(0)
            else:
                counted += 1
                numbers.append(counted)
                events.append(event.coded)
        return Memory(events, "".join(self._roles[1:]).replace(HOST, ""))
