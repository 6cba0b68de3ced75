"""The features of `pharoah_protocol.signal_features` for all samples of a whole fleet at once, with numpy.

Sums over spans are differences of running sums, so the time does not depend on how long the spans are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pharoah_protocol.signal_features import HOURS, SignalKind, Spans

Array = NDArray[np.float64]


def fleet_features(samples: Array, kind: SignalKind, spans: Spans = HOURS) -> Array:
    """The features of one signal after each sample: shape (units, samples, features of the kind).

    `samples` has the shape (units, samples), with NaN where nothing was measured. Features are in the order of
    `FEATURES[kind]`. Running sums cancel where a gauge is large beside its changes, so gauges are centred first.
    """
    return _counter(samples, spans) if kind is SignalKind.COUNTER else _gauge(samples, spans)


def _counter(samples: Array, spans: Spans) -> Array:
    counts, known = np.nan_to_num(samples), ~np.isnan(samples)
    recent, past = _sums(counts, spans.short), _sums(counts, spans.long)
    usual = _before(counts, known, spans, past / spans.long) * spans.long
    line = _Line(counts, known, spans.long)
    events = np.where(2 * line.count >= spans.long, line.ahead(spans.long) * spans.long, past)
    return np.stack([_log_events(one) for one in (recent, past, past - usual, events)], axis=-1)


def _gauge(samples: Array, spans: Spans) -> Array:
    known = ~np.isnan(samples)
    with np.errstate(invalid="ignore"):
        centre = np.where(known.any(axis=1), np.nansum(samples, axis=1) / np.maximum(known.sum(axis=1), 1), 0.0)
    values = np.where(known, samples - centre[:, None], 0.0)
    short, long = _Line(values, known, spans.short), _Line(values, known, spans.long)
    level = np.where(short.count > 0, short.mean, long.mean)
    measured = long.count > 0
    outlook = level + np.where(2 * long.count >= spans.long, long.slope * spans.long, 0.0)
    found = [
        np.where(measured, level + centre[:, None], 0.0),
        short.slope * spans.short,
        np.where(measured, level - _before(values, known, spans, level), 0.0),
        np.where(measured, outlook + centre[:, None], 0.0),
    ]
    return np.stack(found, axis=-1)


def _log_events(events: Array) -> Array:
    found: Array = np.log1p(np.maximum(events, 0.0))
    return found


class _Line:
    """The least squares line through the samples of a span, after each sample."""

    def __init__(self, values: Array, known: NDArray[np.bool_], span: int) -> None:
        self._places = np.arange(values.shape[1], dtype=float)
        self.count = _sums(known.astype(float), span)
        count = np.maximum(self.count, 1.0)
        self._middle = _sums(known * self._places, span) / count
        self.mean = _sums(values, span) / count
        spread = _sums(known * self._places**2, span) - count * self._middle**2
        both = _sums(values * self._places, span) - count * self._middle * self.mean
        self.slope = np.divide(both, spread, out=np.zeros_like(both), where=self.count > 1)

    def ahead(self, samples: int) -> Array:
        """Where the line is so many samples later."""
        found: Array = self.mean + self.slope * (self._places + samples - self._middle)
        return found


def _sums(values: Array, span: int) -> Array:
    """Sums over the last `span` samples, or over as many as there are."""
    running = np.cumsum(values, axis=1)
    found = running.copy()
    found[:, span:] -= running[:, :-span]
    return found


def _before(values: Array, known: NDArray[np.bool_], spans: Spans, otherwise: Array) -> Array:
    """Means of the samples that are older than the long span; something else where they are fewer than the short one
    has."""
    total, count = np.zeros_like(values), np.zeros_like(values)
    total[:, spans.long :] = np.cumsum(values, axis=1)[:, : -spans.long]
    count[:, spans.long :] = np.cumsum(known, axis=1)[:, : -spans.long]
    return np.where(count >= spans.short, total / np.maximum(count, 1.0), otherwise)
