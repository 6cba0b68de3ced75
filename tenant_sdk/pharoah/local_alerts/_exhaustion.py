"""When something that is used up will be gone, such as free memory, from its last samples.

The span that is looked at is cut into blocks of equal length, and each block counts with its least value, which is that
of the moment of greatest use. The differences of successive blocks are rates. Their mean is the rate of the future, and
a prediction interval of Student's t distribution (Hahn and Meeker, Statistical Intervals, 1991, section 4) gives
the bounds of the mean rate until the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

RATES = 8
"""Rates of one span, from one block more."""
STUDENT_QUANTILE = 2.365
"""The 97.5 % quantile of Student's t distribution with 7 degrees of freedom: an interval of 95 %."""
LEAST_FALLING = 7
"""Rates of the eight that must be positive: what falls and rises again is no leak."""
LASTING_ERROR_RATIO = 0.1
"""How much the rate of the future may differ from that of the past for good: jobs change what they do."""
FARTHEST_RATIO = 4.0
"""A forecast reaches no further than so many times the span that it was made from."""
FARTHEST_SECONDS = 86_400.0
"""Nor further than a day: who reads an alert should have something to do about it."""
SHORTEST_BLOCK_SAMPLES = 3
MOST_SAMPLES = 576
"""Samples are kept, and then merged in pairs: 64 of each of nine blocks."""


class Forecast(NamedTuple):
    """When nothing will be left."""

    earliest_seconds: float
    """From now, the lower end of the interval."""
    seconds: float
    latest_seconds: float
    rate: float
    """What is used up per second."""
    span_seconds: float
    """The span that was looked at."""


@dataclass
class Supply:
    """The samples of what is left of one thing, in equal periods. Memory is bounded: old samples are merged."""

    _left: list[float] = field(default_factory=list)
    _period_seconds: float = 0.0
    _began_at: float | None = None
    _added: int = 0
    _open: list[float] = field(default_factory=list)
    _merged: int = 1
    """How many samples make one that is kept."""

    def add(self, at: float, left: float) -> None:
        """A sample, at a time in seconds that grows."""
        if self._began_at is None:
            self._began_at = at
        self._added += 1
        self._open.append(left)
        if len(self._open) < self._merged:
            return
        self._left.append(min(self._open))
        self._open = []
        if len(self._left) >= MOST_SAMPLES:
            self._left = [min(pair) for pair in zip(self._left[::2], self._left[1::2], strict=True)]
            self._merged *= 2
        self._period_seconds = self._merged * (at - self._began_at) / max(1, self._added - 1)

    def forecast(self) -> Forecast | None:
        """When nothing will be left, by the shortest span that shows a steady fall; None where none does."""
        return next(self._forecasts(), None)

    def rate(self, seconds: float) -> float:
        """What was used up per second in the last so many seconds; 0 while there are fewer than two samples."""
        count = min(len(self._left), max(2, round(seconds / self._period_seconds))) if self._period_seconds else 0
        return (self._left[-count] - self._left[-1]) / ((count - 1) * self._period_seconds) if count > 1 else 0.0

    def _forecasts(self) -> Iterator[Forecast]:
        block = SHORTEST_BLOCK_SAMPLES
        while block * (RATES + 1) <= len(self._left):
            if (found := self._of_blocks(block)) is not None:
                yield found
            block *= 2

    def _of_blocks(self, samples: int) -> Forecast | None:
        kept = self._left[-samples * (RATES + 1) :]
        blocks = [kept[at : at + samples] for at in range(0, len(kept), samples)]
        seconds = samples * self._period_seconds
        rates = [(before - after) / seconds for before, after in pairwise(min(block) for block in blocks)]
        rate, left = fmean(rates), kept[-1]
        if rate <= 0 or sum(one > 0 for one in rates) < LEAST_FALLING:
            return None
        span, to_come = seconds * RATES, left / rate
        if to_come > min(FARTHEST_RATIO * span, FARTHEST_SECONDS):
            return None
        future_blocks = max(1.0, to_come / seconds)
        spread = stdev(rates) ** 2 * (1 / RATES + 1 / future_blocks) + (LASTING_ERROR_RATIO * rate / 2) ** 2
        error = STUDENT_QUANTILE * sqrt(spread)
        if error >= rate:
            return None
        swing = max(max(block) - min(block) for block in blocks)
        """What one moment may need more than a sample shows."""
        return Forecast(max(0.0, left - swing) / (rate + error), to_come, left / (rate - error), rate, span)
