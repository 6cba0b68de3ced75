"""When something that is used up will be gone, such as free memory, from its last samples.

The span that is looked at is cut into blocks of equally many samples, and each block counts with its least value, which
is that of the moment of greatest use. The differences of successive blocks are rates. The rate of the whole span is the
rate of the future, and a prediction interval of Student's t distribution (Hahn and Meeker, Statistical Intervals, 1991,
section 4) gives the bounds of the mean rate until the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from math import sqrt
from statistics import stdev
from typing import NamedTuple

RATES = 8
"""Rates of one span, from one block more."""
STUDENT_QUANTILE = 2.365
"""The 97.5 % quantile of Student's t distribution with 7 degrees of freedom: an interval of 95 %."""
MIN_FALLING = 7
"""Rates of the eight that must be positive: what falls and rises again is no leak."""
LASTING_ERROR_RATIO = 0.1
"""How much the rate of the future may differ from that of the past for good: jobs change what they do."""
FARTHEST_RATIO = 4.0
"""A forecast reaches no further than so many times the span that it was made from."""
FARTHEST_SECONDS = 86_400.0
"""Nor further than a day: who reads an alert should have something to do about it."""
SHORTEST_BLOCK_SAMPLES = 3
"""Samples of a shortest block. The blocks of the next row are twice as long, and so on."""


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


class _Block(NamedTuple):
    """Successive samples."""

    ended_at: float
    """When its last sample was taken, in seconds."""
    least: float
    most: float

    def join(self, later: _Block) -> _Block:
        """This block and the one that follows it."""
        return _Block(later.ended_at, min(self.least, later.least), max(self.most, later.most))


@dataclass
class Supply:
    """The samples of what is left of one thing.

    They are kept as rows of blocks: a row has the newest blocks of one length, and two of its blocks make one of the
    next row. So short spans can be looked at however long the samples go on, and memory grows with the logarithm of
    their number.
    """

    _left: list[deque[_Block]] = field(default_factory=list)
    """The row of the shortest blocks first."""
    _blocks: int = 0
    """Blocks that the first row has got so far."""
    _open: list[float] = field(default_factory=list)
    """Samples that make no block yet."""
    _newest: float = 0.0

    def add(self, at: float, left: float) -> None:
        """A sample, at a time in seconds that grows."""
        self._newest = left
        self._open.append(left)
        if len(self._open) == SHORTEST_BLOCK_SAMPLES:
            self._blocks += 1
            self._keep(_Block(at, min(self._open), max(self._open)))
            self._open = []

    def forecast(self) -> Forecast | None:
        """When nothing will be left, by the shortest span that shows a steady fall; None where none does."""
        found = (self._forecast_by_blocks(row) for row in self._left if len(row) > RATES)
        return next((one for one in found if one is not None), None)

    def rate(self, seconds: float) -> float:
        """What was used up per second in a span of about so many seconds that ends now; 0 while there are fewer than
        two blocks."""
        rows = [row for row in self._left if len(row) > 1]
        row = min(rows, key=lambda row: abs(_span(row) - seconds), default=None)
        return _mean_rate(row) if row is not None else 0.0

    def _keep(self, block: _Block) -> None:
        """Add a block to the first row. Every second block of a row completes one of the next row."""
        number = self._blocks
        for row in count():
            if row == len(self._left):
                self._left.append(deque(maxlen=RATES + 1))
            self._left[row].append(block)
            if number % 2:
                return
            number, block = number // 2, self._left[row][-2].join(block)

    def _forecast_by_blocks(self, blocks: Sequence[_Block]) -> Forecast | None:
        """When nothing will be left, by blocks of one length."""
        rates = [_mean_rate(pair) for pair in pairwise(blocks)]
        rate, span = _mean_rate(blocks), _span(blocks)
        if rate <= 0 or sum(one > 0 for one in rates) < MIN_FALLING:
            return None
        to_come = self._newest / rate
        if to_come > min(FARTHEST_RATIO * span, FARTHEST_SECONDS):
            return None
        future_blocks = max(1.0, to_come / (span / RATES))
        spread = stdev(rates) ** 2 * (1 / RATES + 1 / future_blocks) + (LASTING_ERROR_RATIO * rate / 2) ** 2
        error = STUDENT_QUANTILE * sqrt(spread)
        if error >= rate:
            return None
        swing = max(block.most - block.least for block in blocks)
        """What one moment may need more than a sample shows."""
        earliest = max(0.0, self._newest - swing) / (rate + error)
        return Forecast(earliest, to_come, self._newest / (rate - error), rate, span)


def _span(blocks: Sequence[_Block]) -> float:
    """Seconds between the ends of the first and of the last block."""
    return blocks[-1].ended_at - blocks[0].ended_at


def _mean_rate(blocks: Sequence[_Block]) -> float:
    """What was used up per second between the first and the last block."""
    return (blocks[0].least - blocks[-1].least) / _span(blocks)
