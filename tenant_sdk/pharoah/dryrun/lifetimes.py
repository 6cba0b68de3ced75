"""Allocations from birth to death, continued with repetitions of parts of what was seen."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence

from pharoah.cost.step import GRADIENT, KERNEL, OTHER, PARAMETER, STATE, Memory

HOST = "h"
"""The role of what is not on the device."""
_ONCE = (PARAMETER, STATE, KERNEL)
"""What is made once and kept."""


def allocations(events: Sequence[int]) -> int:
    return sum(event > 0 for event in events)


class Lifetimes:
    """Events, continued with repetitions of parts of themselves."""

    def __init__(self, events: array[int], roles: dict[int, str]) -> None:
        self.events = array("q", events)
        self._sizes = [0, *(event for event in events if event > 0)]
        self._roles = [roles.get(number, OTHER) for number in range(len(self._sizes))]
        alive = dict.fromkeys(range(1, len(self._sizes)))
        for event in events:
            if event < 0:
                alive.pop(-event)
        self._alive: dict[int, list[int]] = defaultdict(list)
        """Size to the allocations that may be freed, the youngest last."""
        for number in alive:
            self._live(number)
        self._accumulates = any(self._roles[number] == GRADIENT for number in alive)

    def _live(self, number: int) -> None:
        if self._roles[number] not in _ONCE:
            self._alive[self._sizes[number]].append(number)

    def repeat(self, start: int, end: int) -> None:
        """Do again what happened between two positions.

        What was made and kept there before is there already: parameters, optimizer state, gradients that are added to.
        What was made before and freed there is matched by size.
        """
        number = allocations(self.events[:start])
        freed = {-event for event in self.events[start:end] if event < 0}
        again: dict[int, int] = {}
        """Allocations that are made there to their repetitions."""
        for event in self.events[start:end]:
            if event < 0:
                self._free(-event, again.pop(-event, 0) or self._alike(-event))
                continue
            number += 1
            if self._roles[number] in _ONCE and not (self._roles[number] == KERNEL and number in freed):
                continue
            again[number] = self._allocate(number)
            if self._roles[number] == GRADIENT and self._accumulates:
                self._free(number, again.pop(number))
        for copy in again.values():
            self._live(copy)

    def _allocate(self, original: int) -> int:
        self.events.append(self._sizes[original])
        self._sizes.append(self._sizes[original])
        self._roles.append(self._roles[original])
        return len(self._sizes) - 1

    def _alike(self, original: int) -> int:
        """The youngest of the same size that was there before; 0 when there is none."""
        candidates = self._alive[self._sizes[original]]
        return candidates.pop() if candidates else 0

    def _free(self, original: int, copy: int) -> None:
        if copy:
            self._roles[copy] = self._roles[original]
            self.events.append(-copy)

    def memory(self) -> Memory:
        """Without what is not on the device."""
        numbers, counted, events = [0], 0, array("q")
        for event in self.events:
            if event < 0:
                if numbers[-event]:
                    events.append(-numbers[-event])
            elif self._roles[len(numbers)] == HOST:
                numbers.append(0)
            else:
                counted += 1
                numbers.append(counted)
                events.append(event)
        return Memory(events, "".join(self._roles[1:]).replace(HOST, ""))
