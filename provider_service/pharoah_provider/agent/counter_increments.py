"""Increments of counters that begin again, are reset, or vanish for a while.

A counter of a kernel or a driver counts since a moment that nobody knows. What counts is by how much it has grown since
it was read last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

MAX_GROWTH_BITS = 24
"""A counter that has become smaller has begun again at its width if it would have grown by less than 2^24 (17 million)
meanwhile. Otherwise it was reset: no device has so many errors between two readings, and a count that is reset is
seldom so near its end."""


@dataclass
class CounterIncrements:
    """The increments of one counter of one device. `bits` is the width at which it begins again."""

    bits: int
    _last: int | None = field(default=None, init=False)

    def count_since(self, raw: float) -> int | None:
        """What was counted since the reading before; None at the first reading.

        A counter that was reset has counted at least what it shows now. One that vanishes is not read, and what it
        counted meanwhile comes with the next reading.
        """
        count, last = int(raw), self._last
        self._last = count
        if last is None:
            return None
        if count >= last:
            return count - last
        around = count - last + (1 << self.bits)
        return around if 0 <= around < 1 << MAX_GROWTH_BITS else count


class CounterKey(NamedTuple):
    """One counter of a node."""

    signal: str
    device: str
    parts: int = 1
    """Counts that were added up (`Reading.parts`)."""


@dataclass
class NodeIncrements:
    """The increments of all counters of one node, for one reader: two readers would take them from each other."""

    _counters: dict[CounterKey, CounterIncrements] = field(default_factory=dict, init=False)

    def count_since(self, key: CounterKey, bits: int, raw: float) -> int | None:
        """As `CounterIncrements.count_since`, for the counter `key`."""
        if key not in self._counters:
            self._counters[key] = CounterIncrements(bits)
        return self._counters[key].count_since(raw)
