"""Whether the steps of a rank take longer than before: a cumulative sum of small evidence.

Each window adds how far the logarithm of its step time lies above the usual one, less half of the change that matters
(E. S. Page, Continuous inspection schemes, Biometrika 41, 1954). What one window can add is bounded, so that a single
pause, for a checkpoint or a new compilation, never suffices. The bound of the sum follows from the noise of the run
itself: with Siegmund's approximation of the average run length (Sequential Analysis, 1985, equation 2.57), a healthy
run crosses it once in QUIET_WINDOWS windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import fmean, median
from typing import NamedTuple

CHANGE = log(1.1)
"""The change that matters: steps that take 1.1 times as long."""
ALLOWANCE = CHANGE / 2
NOISE_ALLOWANCE = 0.75
"""At least so many standard deviations of a window are taken from each, because a sum that allows for less needs a very
high bound, and finds nothing in a noisy run. Changes of twice as many are found soon."""
MIN_WINDOWS = 3
"""One window adds so small a part of the bound that at least so many have to agree."""
MIN_BOUND = 0.15
QUIET_WINDOWS = 72_000
"""A hundred hours of windows of 5 s."""
FIRST_WINDOWS = 12
"""Windows that the usual step time is taken from at first."""
MAX_MEMORY = 120
"""The usual step time follows the run with the weight of so many windows: ten minutes of windows of 5 s."""
MIN_NOISE = 0.005
"""The standard deviation of a window that is assumed at least: 0.5 %."""
CALM_WINDOWS = 6
"""So many windows in a row that are as fast as before end a change."""
KEPT_WINDOWS = 24
"""The newest windows, two minutes of them, are kept: those since a change may become the usual ones."""
_MEAN_TO_DEVIATION = 1.2533
"""The standard deviation of a normal distribution over its mean absolute deviation, the root of pi / 2."""
_TO_DEVIATION = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""


class _Numbered(NamedTuple):
    """The logarithm of the step time of one window."""

    number: int
    value: float


@dataclass
class StepChange:
    """One rank's step times, window by window."""

    raised: bool = False
    since: int | None = None
    """The window at which the evidence began to grow; None while there is none."""
    raised_at: int = 0
    """The window at which it was raised for the last time."""
    usual: float = 0.0
    """The usual logarithm of a window."""
    usual_since: int = 0
    """The window after which the usual step time holds."""
    bound: float = MIN_BOUND
    """The sum beyond which the steps take longer."""
    _noise: float = MIN_NOISE
    _allowance: float = ALLOWANCE
    _sum: float = 0.0
    _least_sum: float = 0.0
    """The same for windows of which only a lower bound is known, since the other sum was 0."""
    _faster: float = 0.0
    """The sum for windows that are faster than usual."""
    _first: list[float] = field(default_factory=list)
    _weight: int = FIRST_WINDOWS
    _windows: int = 0
    _last: deque[_Numbered] = field(default_factory=lambda: deque(maxlen=KEPT_WINDOWS))

    @property
    def known(self) -> bool:
        """Whether the usual step time is known."""
        return len(self._first) >= FIRST_WINDOWS

    def add(self, value: float) -> None:
        """One more window: the logarithm of its step time."""
        self._windows += 1
        self._last.append(_Numbered(self._windows, value))
        if not self.known:
            self._first.append(value)
            if self.known:
                self._learn()
            return
        above = value - self.usual
        if self.raised:
            self._end_if_calm()
            return
        self._sum = self._add(self._sum, above)
        if self._sum == 0:
            self._least_sum = 0.0
        self._judge()
        self._follow(above)

    def add_least(self, value: float) -> None:
        """One more window, of whose step time only a lower bound is known: its logarithm. It has a sum of its own, so
        that a low bound takes nothing from what other windows show. Nothing usual is learned from it, and it ends no
        change."""
        self._windows += 1
        if self.known and not self.raised:
            self._least_sum = self._add(self._least_sum, value - self.usual)
            self._judge()

    def _add(self, total: float, above: float) -> float:
        return max(0.0, total + min(above - self._allowance, self._most))

    def _judge(self) -> None:
        self.raised = self._evidence > self.bound
        if self.raised:
            self.raised_at = self._windows
        if self._evidence == 0:
            self.since = None
        elif self.since is None:
            self.since = self._windows

    @property
    def _evidence(self) -> float:
        return self._sum + self._least_sum

    @property
    def doubted(self) -> bool:
        """Whether what one window adds at most speaks for a change."""
        return self._evidence >= self._most

    @property
    def _most(self) -> float:
        """What one window adds at most."""
        return self.bound / (MIN_WINDOWS - 0.5)

    @property
    def _newest(self) -> list[float]:
        return [value for _, value in self._last][-CALM_WINDOWS:]

    def accept(self, since: int) -> None:
        """What is seen since a window is as it should be: from now on, the usual step time is that of the windows after
        it. The noise is at least that of before. Nothing changes where no such window is kept."""
        self.raised, self.since = False, None
        self._sum = self._least_sum = self._faster = 0.0
        values = [value for number, value in self._last if number > since]
        if self.known and values:
            self.usual, self.usual_since, self._weight = median(values), since, len(values)
            self._set_noise(max(self._noise, _deviation(values, self.usual)))

    def _learn(self) -> None:
        self.usual, self.usual_since = median(self._first), self._windows - FIRST_WINDOWS
        self._set_noise(_deviation(self._first, self.usual))
        self._weight, self._faster = FIRST_WINDOWS, 0.0
        self._sum = self._least_sum = 0.0

    def _set_noise(self, noise: float) -> None:
        self._noise = max(MIN_NOISE, noise)
        self._allowance = max(ALLOWANCE, NOISE_ALLOWANCE * self._noise)
        self.bound = max(MIN_BOUND, self._noise * _standard_bound(self._allowance / self._noise))

    def _follow(self, above: float) -> None:
        """The usual step time and the noise follow slowly while nothing speaks for a change, and the step time at once
        when the run becomes faster for good. Then it is learned from a minute that begins before, so that a run that is
        faster now and then has a usual step between both."""
        self._faster = max(0.0, self._faster + min(-above - self._allowance, self._most))
        if self._faster > self.bound:
            self._first = self._newest
            return
        if self._evidence < self.bound / 4:
            self._weight = min(self._weight + 1, MAX_MEMORY)
            self.usual += max(-2 * self._noise, min(above, 2 * self._noise)) / self._weight
            deviation = _MEAN_TO_DEVIATION * min(abs(above), 3 * self._noise)
            self._set_noise(self._noise + (deviation - self._noise) / max(self._weight, FIRST_WINDOWS))

    def _end_if_calm(self) -> None:
        if len(self._newest) == CALM_WINDOWS and fmean(self._newest) - self.usual < self._allowance:
            self.raised, self.since = False, None
            self._sum = self._least_sum = 0.0


def _deviation(values: Sequence[float], middle: float) -> float:
    """The standard deviation of values around their middle, by their median absolute deviation."""
    return _TO_DEVIATION * median(abs(value - middle) for value in values)


def _standard_bound(allowance: float) -> float:
    """The bound of a sum of values with a spread of one, each less `allowance`, that a healthy run crosses once in
    QUIET_WINDOWS windows on average."""
    low, high = 0.0, 100.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _run_length(middle, allowance) < QUIET_WINDOWS else (low, middle)
    return high


def _run_length(bound: float, allowance: float) -> float:
    """Windows until a healthy run crosses `bound`, on average; infinite beyond what a float can hold."""
    twice = 2 * allowance * (bound + 1.166)
    return float("inf") if twice > 700 else (exp(twice) - twice - 1) / (2 * allowance**2)
