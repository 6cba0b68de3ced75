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

COUNTER_FEATURES = ("recent", "past", "excess", "outlook")
"""Features of a counter are logarithms of one plus a number of events: those of the short and of the long span; those
of the long span beyond what the time before it would give for so long a time; and those of a long span at the rate to
which the least squares line through the samples of the last long span leads, one long span from now."""
TOTAL_FEATURE = "past"
"""The feature of a counter that counts the long span. No gauge has a feature of this name."""
GAUGE_FEATURES = ("level", "slope", "excess", "outlook")
"""Features of a gauge: the mean of the short span; the change over the short span, along a least squares line; how far
the mean of the short span is above the mean of the time before the long span; and where that mean is a long span from
now, if it goes on to change like the least squares line through the long span."""

FEATURES = {SignalKind.COUNTER: COUNTER_FEATURES, SignalKind.GAUGE: GAUGE_FEATURES}


def worse_features(kind: SignalKind, worse: WorseDirection | None) -> tuple[WorseDirection | None, ...]:
    """In which direction of each feature nothing is better, in the order of `FEATURES`, for a signal that is worse in a
    direction; None for a direction that nobody knows. More events are always worse, but for those of the long span:
    what a link counted all day is usual for it."""
    if kind is SignalKind.COUNTER:
        higher = WorseDirection.HIGHER
        return higher, None, higher, higher
    return (worse,) * len(GAUGE_FEATURES)


class SignalHistory:
    """The last samples of one signal, and its features. Memory is bounded by the long span.

    What is excess is relative to the signal's own past, so that a link which always counts errors is no sick link. It
    is 0 until the time before the long span has as many samples as the short one. The outlook is what is seen now until
    half of the long span was measured: a line through few samples goes anywhere.
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
    recent, past, known = _total(samples[-spans.short :]), _total(samples), _select_known(samples)
    usual = before.mean * spans.long if before.samples >= spans.short else past
    line = _Line.through(known)
    rate = line.at(len(samples) - 1 + spans.long) if 2 * len(known) >= spans.long else past / spans.long
    events = (recent, past, past - usual, rate * spans.long)
    return tuple(map(_log_events, events))


def _gauge(samples: Sequence[float | None], before: _Before, spans: Spans) -> tuple[float, ...]:
    short, known = _select_known(samples[-spans.short :]), _select_known(samples)
    if not known:
        return (0.0,) * len(GAUGE_FEATURES)
    long = _Line.through(known)
    level = sum(value for _, value in short) / len(short) if short else long.mean
    usual = before.mean if before.samples >= spans.short else level
    outlook = level + long.slope * spans.long if 2 * len(known) >= spans.long else level
    return level, _Line.through(short).slope * spans.short, level - usual, outlook


def _log_events(events: float) -> float:
    return log1p(max(events, 0.0))


def _total(samples: Sequence[float | None]) -> float:
    return sum(sample for sample in samples if sample is not None)


def _select_known(samples: Sequence[float | None]) -> list[tuple[int, float]]:
    """The samples that were measured, with their places."""
    return [(at, sample) for at, sample in enumerate(samples) if sample is not None]


class _Line(NamedTuple):
    """The least squares line through samples; level with fewer than two of them, and 0 without any."""

    middle: float
    """The mean of the places."""
    mean: float
    """The mean of the samples."""
    slope: float
    """Change per sample."""

    @classmethod
    def through(cls, known: Sequence[tuple[int, float]]) -> _Line:
        if not known:
            return cls(0.0, 0.0, 0.0)
        middle = sum(at for at, _ in known) / len(known)
        mean = sum(value for _, value in known) / len(known)
        spread = sum((at - middle) ** 2 for at, _ in known)
        rise = sum((at - middle) * (value - mean) for at, value in known)
        return cls(middle, mean, rise / spread if spread else 0.0)

    def at(self, place: int) -> float:
        return self.mean + self.slope * (place - self.middle)
