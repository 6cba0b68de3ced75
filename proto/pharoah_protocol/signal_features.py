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

COUNTER_FEATURES = ("recent", "past", "acceleration", "freshness")
"""Features of a counter: the logarithm of one plus the events in the short and in the long span; the difference between
the first and what the long span alone would give for so short a time; and how recent the last event is."""
GAUGE_FEATURES = ("level", "slope", "drift", "peak")
"""Features of a gauge: the mean of the short span; the change over the short and over the long span, along a least
squares line; and how far the largest value of the long span is above its mean."""

FEATURES = {SignalKind.COUNTER: COUNTER_FEATURES, SignalKind.GAUGE: GAUGE_FEATURES}


class SignalHistory:
    """The last samples of one signal, and its features. Memory is bounded by the long span."""

    def __init__(self, kind: SignalKind, spans: Spans = MINUTES) -> None:
        """Raises ValueError for spans that are not 2 or more samples, the short one no longer than the long one."""
        if not 2 <= spans.short <= spans.long:
            raise ValueError(f"spans: expected 2 <= short <= long, not {spans.short} and {spans.long}")
        self._kind = kind
        self._spans = spans
        self._samples: deque[float | None] = deque(maxlen=spans.long)

    def add(self, sample: float | None) -> None:
        """Add the sample of the next period; None where nothing was measured."""
        self._samples.append(sample)

    def features(self) -> dict[str, float]:
        """By name, in the order of `FEATURES`; all are 0 while there are no samples."""
        samples = list(self._samples)
        compute = _counter if self._kind is SignalKind.COUNTER else _gauge
        return dict(zip(FEATURES[self._kind], compute(samples, self._spans), strict=True))


def _counter(samples: Sequence[float | None], spans: Spans) -> tuple[float, ...]:
    recent = _total(samples[-spans.short :])
    past = _total(samples)
    expected = past * spans.short / spans.long
    since = next((age for age, sample in enumerate(reversed(samples)) if sample), spans.long)
    freshness = log1p(spans.long) - log1p(since)
    return log1p(recent), log1p(past), log1p(recent) - log1p(expected), freshness


def _gauge(samples: Sequence[float | None], spans: Spans) -> tuple[float, ...]:
    short, known = _known(samples[-spans.short :]), _known(samples)
    if not known:
        return 0.0, 0.0, 0.0, 0.0
    mean = sum(value for _, value in known) / len(known)
    level = sum(value for _, value in short) / len(short) if short else mean
    return level, _slope(short) * spans.short, _slope(known) * spans.long, max(value for _, value in known) - mean


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
