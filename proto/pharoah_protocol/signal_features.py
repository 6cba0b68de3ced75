"""Features of one signal of one node or run: what its last samples say about a failure that comes.

Samples come at a fixed period; a sample that is missing is None. A counter counts events, such as corrected memory
errors, and its samples are what was counted in one period: whoever reads a device takes care of a counter that wraps
or begins again. A gauge is a level, such as a temperature.

This is the definition, in pure Python, for agents and sidecars that compute features of a few signals once a period.
`pharoah_learning.fleet_features` computes the same for whole fleets; a test holds the two together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from math import log1p
from typing import NamedTuple

from pharoah_protocol.vocabulary import WorseDirection


class SignalKind(StrEnum):
    """What the samples of a signal are."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Spans(NamedTuple):
    """How far features look back, in samples."""

    short: int
    long: int


MINUTES = Spans(short=360, long=1440)
"""Six hours and a day of samples that are taken each minute."""
HOURS = Spans(short=6, long=24)
"""The same of hourly samples."""

COUNTER_FEATURES = ("recent", "past", "acceleration", "excess")
"""Features of a counter: the logarithm of one plus the events in the short and in the long span; the difference between
the first and what the long span would give for so short a time; and the logarithm of one plus the events of the long
span beyond those that the time before it would give for so long a time."""
GAUGE_FEATURES = ("level", "slope", "drift", "excess")
"""Features of a gauge: the mean of the short span; the change over the short and over the long span, along a least
squares line; and how far the mean of the short span is above the mean of the time before the long span."""

FEATURES = {SignalKind.COUNTER: COUNTER_FEATURES, SignalKind.GAUGE: GAUGE_FEATURES}


def worse_features(kind: SignalKind, worse: WorseDirection | None) -> tuple[WorseDirection | None, ...]:
    """In which direction of each feature nothing is better, in the order of `FEATURES`, for a signal that is worse in a
    direction; None for a direction that nobody knows. More events are always worse, but for those of the long span:
    what a link counted all day is usual for it."""
    if kind is SignalKind.COUNTER:
        return (WorseDirection.HIGHER, None, WorseDirection.HIGHER, WorseDirection.HIGHER)
    return (worse,) * len(GAUGE_FEATURES)


class SignalHistory:
    """The last samples of one signal, and its features. Memory is bounded by the long span.

    What is excess is relative to the signal's own past, so that a link which always counts errors is no sick link. It
    is 0 until the time before the long span has as many samples as the short one.
    """

    def __init__(self, kind: SignalKind, spans: Spans = MINUTES) -> None:
        """Raises ValueError for spans that are not 2 or more samples, the short one no longer than the long one."""
        if not 2 <= spans.short <= spans.long:
            raise ValueError(f"spans: expected 2 <= short <= long, not {spans.short} and {spans.long}")
        self._kind = kind
        self._spans = spans
        self._samples: deque[float | None] = deque(maxlen=spans.long)
        self._before = _Before(0.0, 0)

    def add(self, sample: float | None) -> None:
        """Add the sample of the next period; None where nothing was measured."""
        if len(self._samples) == self._spans.long:
            self._before = self._before.with_one(self._samples[0])
        self._samples.append(sample)

    def features(self) -> dict[str, float]:
        """By name, in the order of `FEATURES`; all are 0 while there are no samples."""
        samples = list(self._samples)
        compute = _counter if self._kind is SignalKind.COUNTER else _gauge
        return dict(zip(FEATURES[self._kind], compute(samples, self._before, self._spans), strict=True))


class _Before(NamedTuple):
    """The samples that are older than the long span."""

    total: float
    samples: int

    def with_one(self, sample: float | None) -> _Before:
        return self if sample is None else _Before(self.total + sample, self.samples + 1)

    @property
    def mean(self) -> float:
        return self.total / self.samples


def _counter(samples: Sequence[float | None], before: _Before, spans: Spans) -> tuple[float, ...]:
    recent, past = _total(samples[-spans.short :]), _total(samples)
    acceleration = log1p(recent) - log1p(past * spans.short / spans.long)
    usual = before.mean * spans.long if before.samples >= spans.short else past
    return log1p(recent), log1p(past), acceleration, log1p(max(past - usual, 0.0))


def _gauge(samples: Sequence[float | None], before: _Before, spans: Spans) -> tuple[float, ...]:
    short, known = _known(samples[-spans.short :]), _known(samples)
    if not known:
        return 0.0, 0.0, 0.0, 0.0
    mean = sum(value for _, value in known) / len(known)
    level = sum(value for _, value in short) / len(short) if short else mean
    usual = before.mean if before.samples >= spans.short else level
    return level, _slope(short) * spans.short, _slope(known) * spans.long, level - usual


def _total(samples: Sequence[float | None]) -> float:
    return sum(sample for sample in samples if sample is not None)


def _known(samples: Sequence[float | None]) -> list[tuple[int, float]]:
    """The samples that were measured, with their places."""
    return [(at, sample) for at, sample in enumerate(samples) if sample is not None]


def _slope(known: Sequence[tuple[int, float]]) -> float:
    """Change per sample along the least squares line; 0 with fewer than two samples."""
    if len(known) < 2:
        return 0.0
    middle = sum(at for at, _ in known) / len(known)
    mean = sum(value for _, value in known) / len(known)
    spread = sum((at - middle) ** 2 for at, _ in known)
    return sum((at - middle) * (value - mean) for at, value in known) / spread
