"""Thresholds of alarms from runs that did not fail and were not fitted on.

Two promises are possible. `conformal_threshold`: no more than a share of healthy runs ever alarm (split conformal
prediction, Vovk, Gammerman and Shafer 2005); it holds for runs that are like those it was set on. `budget_threshold`:
no more than so many false alarms per unit-day, where an alarm that goes on is one.
"""

from __future__ import annotations

from math import ceil, inf

import numpy as np

from pharoah_learning.models.mantel_haenszel import Array

_HALVINGS = 50
_STEP = 1.05
"""By how much more scores are above each next threshold that is tried."""


def conformal_threshold(peaks: Array, share: float) -> float:
    """The threshold that a new healthy run exceeds with a probability of at most `share`.

    `peaks`: the highest score of each healthy run. With fewer than 1 / share - 1 runs nothing can be promised, and the
    threshold is infinite. Raises ValueError for a share that is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise ValueError(f"share: expected a number between 0 and 1, not {share}")
    rank = ceil((len(peaks) + 1) * (1 - share) - 1e-9)
    return inf if rank > len(peaks) else float(np.sort(peaks)[rank - 1])


def alarms(scores: Array, threshold: float, hold: int) -> np.ndarray:
    """Which scores begin an alarm: shape (units, times), as the scores, in which NaN is a time without one.

    An alarm goes on until no score was above the threshold for `hold` times, so a score above it begins one only where
    none was in the `hold - 1` times before. The alert of a tenant lasts as long (`pharoah.local_alerts.node_failure`).
    """
    above = np.nan_to_num(scores, nan=-inf) > threshold
    begins = np.zeros_like(above)
    quiet = np.zeros(len(scores), dtype=int)  # the first time at which the alarm of each unit is over
    for at in range(scores.shape[1]):
        begins[:, at] = above[:, at] & (quiet <= at)
        quiet[above[:, at]] = at + hold
    return begins


def budget_threshold(scores: Array, per_time: float, hold: int) -> float:
    """A threshold at which units that did not fail begin at most `per_time` alarms for each of their times, as they do
    at all higher ones.

    A low enough threshold gives few alarms again, because they never end. So this comes from above, and stops where
    there are too many. One alarm more than was seen counts, so that the promise also holds for few units. Infinite
    where even no alarm is too many.
    """
    falling = np.sort(scores[~np.isnan(scores)])[::-1]
    allowed = per_time * len(falling) - 1
    if allowed < 0:
        return inf
    place, high = int(allowed), inf
    while place < len(falling):
        # No more alarms begin than there are scores above a threshold, so the first one is always good.
        low = float(falling[place])
        if alarms(scores, low, hold).sum() > allowed:
            return _between(scores, low, high, allowed, hold)
        place, high = max(place + 1, int(place * _STEP)), low
    return float(falling[-1]) - 1


def _between(scores: Array, low: float, high: float, allowed: float, hold: int) -> float:
    """The threshold between one that gives too many alarms and one that does not."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if alarms(scores, middle, hold).sum() > allowed:
            low = middle
        else:
            high = middle
    return high
