"""How far the repeats of one run are above those of a fleet, and above past runs of the same node.

A run is an array of logarithms of seconds in rising order, so that it is its own quantile function; larger is slower.
"""

from __future__ import annotations

import numpy as np

from pharoah_learning.models.mantel_haenszel import Array

SLOW_QUANTILE = 0.9
"""Above the usual share of slow repeats, 5 % here, so that one of them more or less does not move it."""
SLOWEST_SHARE = 0.2
"""The slowest repeats, whose mean sees few that are very slow; the quantile sees more that are less slow."""


def in_order(run: Array, repeats: int) -> Array:
    """The first repeats of a run in rising order, shape (repeats,).

    Raises ValueError for a repeat that is not a finite number.
    """
    found = np.asarray(run, dtype=float)[:repeats]
    if not np.isfinite(found).all():
        raise ValueError(f"run: {found[~np.isfinite(found)][0]} is not a finite logarithm of seconds")
    return np.sort(found)


def summaries(runs: Array) -> Array:
    """Mean, slow quantile and mean of the slowest repeats of runs in rising order, shape (..., 3)."""
    slowest = runs[..., -max(1, round(SLOWEST_SHARE * runs.shape[-1])) :]
    return np.stack([runs.mean(-1), np.quantile(runs, SLOW_QUANTILE, axis=-1), slowest.mean(-1)], axis=-1)


def above_fleet(runs: Array, centroid: Array) -> Array:
    """Area and summaries of runs above a centroid, shape (..., 4), in logarithms of a ratio."""
    area = np.maximum(0.0, runs - centroid).mean(axis=-1, keepdims=True)
    return np.concatenate([area, summaries(runs) - summaries(centroid)], axis=-1)


def above_past(run: Array, past: Array) -> Array:
    """The summaries of a run above those of past runs of the same node, shape (3,)."""
    difference: Array = summaries(run) - summaries(past).mean(axis=0)
    return difference


def centroids_of_others(runs: Array) -> Array:
    """For each run the median over the other ones, in the shape of `runs`; a run alone is compared with itself."""
    count = len(runs)
    if count < 2:
        return runs
    order = np.sort(runs, axis=0)
    ranks = np.argsort(np.argsort(runs, axis=0, kind="stable"), axis=0)
    places = (np.full_like(ranks, middle) for middle in ((count - 2) // 2, (count - 1) // 2))
    low, high = (np.take_along_axis(order, place + (place >= ranks), axis=0) for place in places)
    middle: Array = (low + high) / 2
    return middle
