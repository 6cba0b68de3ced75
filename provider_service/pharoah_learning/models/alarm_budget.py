"""Thresholds of alarms from runs that did not fail and were not fitted on.

Two promises are possible. `conformal_threshold`: no more than a share of healthy runs ever alarm (split conformal
prediction, Vovk, Gammerman and Shafer 2005); it holds for runs that are like those it was set on. `budget_threshold`:
no more than so many false alarms per unit-day, where an alarm is not repeated for some time.
"""

from __future__ import annotations

from math import ceil, inf

import numpy as np

from pharoah_learning.models.mantel_haenszel import Array

_HALVINGS = 50


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

    A score above the threshold alarms unless an alarm began less than `hold` times before.
    """
    above = np.nan_to_num(scores, nan=-inf) > threshold
    begins = np.zeros_like(above)
    quiet = np.zeros(len(scores), dtype=int)  # the first time at which each unit may alarm again
    for at in range(scores.shape[1]):
        begins[:, at] = above[:, at] & (quiet <= at)
        quiet[begins[:, at]] = at + hold
    return begins


def budget_threshold(scores: Array, per_time: float, hold: int) -> float:
    """The lowest threshold at which units that did not fail begin at most `per_time` alarms for each of their times.

    One alarm more than was seen counts, so that the promise also holds for few units. Infinite where even no alarm is
    too many.
    """
    allowed = per_time * float(np.count_nonzero(~np.isnan(scores))) - 1
    if allowed < 0:
        return inf
    low, high = float(np.nanmin(scores)) - 1, float(np.nanmax(scores))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if alarms(scores, middle, hold).sum() > allowed:
            low = middle
        else:
            high = middle
    return high
