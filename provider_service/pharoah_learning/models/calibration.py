"""Calibration: scores become probabilities, by the share of failures that scores of their size had.

Isotonic regression (Zadrozny and Elkan 2002) needs many failures; with fewer, a logistic curve of the score is fitted
(Platt 1999).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from pharoah_learning.models.logistic import fit
from pharoah_learning.models.mantel_haenszel import Array

SAME_SCORE = 1e-4
"""Scores that differ by less are equal. They are sums of 32-bit numbers, so they differ in the seventh digit where the
features are the same: the order in which a matrix product adds up depends on the processor and on the row."""
MIN_FAILURES = 100.0
"""Failures from which on isotonic regression is used: below, its steps follow single failures."""
_PLATT_RIDGE = 1e-3
"""Keeps the curve finite where scores separate the failures; on the scale of scores with a spread of one."""
_POINTS = 1024
_MIN_PROBABILITY = 1e-6
"""What scores get of which none has failed: its logarithm is finite, and in a million hours it is one failure."""
_TINY = 1e-12
"""Keeps the distance of points and the spread of scores above 0 where all scores are one."""


@dataclass(frozen=True)
class Calibration:
    """A rising curve on an even grid of scores; between its points it is linear, and beyond them constant."""

    low: float
    """The score of the first point."""
    high: float
    """The score of the last one."""
    probabilities: tuple[float, ...]

    @cached_property
    def _curve(self) -> tuple[Array, Array]:
        """Each point, and how far it is from there to the next one."""
        points = np.array(self.probabilities)
        return points, np.diff(points, append=points[-1])

    def __call__(self, scores: Array) -> Array:
        """An even grid is read at a computed place: a search for the place takes three times as long."""
        points, steps = self._curve
        last = len(points) - 1
        place = (scores - self.low) * (last / max(self.high - self.low, _TINY))
        np.clip(place, 0, last, out=place)
        before = place.astype(np.intp)
        found: Array = points.take(before) + steps.take(before) * (place - before)
        return found


def calibrate(scores: Array, failed: Array, weights: Array, failures: float) -> Calibration:
    """Fit the curve. All arrays have the shape (rows,); `failures` says how many units have failed, since rows of one
    unit are no new evidence. Raises ValueError without a row."""
    if not len(scores):
        raise ValueError("scores: there are none")
    if failures >= MIN_FAILURES:
        return _isotonic(scores, failed, weights)
    middle, spread = float(scores.mean()), max(float(scores.std()), _TINY)
    columns = np.stack([np.ones(len(scores)), (scores - middle) / spread], axis=1)
    penalty, rises = np.array([0.0, _PLATT_RIDGE]), np.array([False, True])
    constant, slope = fit(columns, failed * weights, penalty, weights, rises).value
    places = np.quantile(scores, np.linspace(0, 1, _POINTS))
    return _on_grid(places, 1 / (1 + np.exp(-(constant + slope * (places - middle) / spread))))


def _isotonic(scores: Array, failed: Array, weights: Array) -> Calibration:
    """Rows with the same score are one point of the curve: their order must not make a step of it."""
    places, row = np.unique((scores / SAME_SCORE).round() * SAME_SCORE, return_inverse=True)
    total = np.bincount(row, weights).clip(min=_TINY)
    share = np.bincount(row, failed * weights) / total
    return _knots(places, total, scipy.optimize.isotonic_regression(share, weights=total).x)


def _knots(scores: Array, weights: Array, curve: Array) -> Calibration:
    """The middles of the steps of a curve, so that it rises between them.

    Between two middles the logarithm of the probability is linear: scores are logits, and most rows of a step have low
    ones, so a line between probabilities would promise more failures than there were.
    """
    begins = np.flatnonzero(np.diff(curve, prepend=-1.0) > 0)
    ends = np.append(begins[1:], len(curve))
    steps = [slice(begin, end) for begin, end in zip(begins, ends, strict=True)]
    places = np.array([np.average(scores[step], weights=weights[step]) for step in steps])
    found = _on_grid(places, np.log(curve[begins].clip(min=_MIN_PROBABILITY)))
    return replace(found, probabilities=tuple(map(float, np.exp(found.probabilities))))


def _on_grid(places: Array, values: Array) -> Calibration:
    """A curve through these points, at even distances."""
    grid = np.linspace(places[0], places[-1], _POINTS)
    return Calibration(float(grid[0]), float(grid[-1]), tuple(map(float, np.interp(grid, places, values))))
