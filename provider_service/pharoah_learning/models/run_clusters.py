"""How much is known when runs come in clusters, such as all runs of one host: clusters count, not runs.

Runs of one host share its faults, its files and its environment, so a thousand of them say little more than one. Two
methods: the score test of an exposure with the variance between clusters (Liang and Zeger 1986), and the difference of
two groups with the variance of leaving out each cluster in turn (Miller 1974; MacKinnon and others 2023, CV3).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from pharoah_learning.models.mantel_haenszel import Array

LEVEL = 0.05
Codes = NDArray[np.integer[Any]]


def score_p_values(scores: Array) -> Array:
    """One-sided p of no association, from the scores of each cluster (shape (..., clusters)).

    A score is the sum over the runs of a cluster of (exposure - its mean) * (failure - its mean), with the means of the
    run's stratum. Without an association each sign of a score is as likely as the other, so no p is smaller than that
    of as many equal signs as there are clusters of equal weight.
    """
    squares = np.asarray((scores**2).sum(axis=-1))
    known = squares > 0
    z = np.divide(scores.sum(axis=-1), np.sqrt(squares), out=np.zeros(squares.shape), where=known)
    equal_clusters = np.divide(squares**2, (scores**4).sum(axis=-1), out=np.zeros(squares.shape), where=known)
    return np.where(known, np.maximum(scipy.stats.norm.sf(z), 0.5**equal_clusters), 1.0)


class Difference(NamedTuple):
    """How much larger the values of one group are than those of another, in the units of the values."""

    value: float
    low: float
    """Its interval at 95 %."""
    high: float
    p: float
    """Two-sided p of no difference."""
    least: float
    """The value nearest to the other side of zero that is left when one cluster is left out; NaN when leaving one out
    leaves nothing to compare."""
    worst: int
    """The code of that cluster."""


def difference(values: Array, in_group: NDArray[np.bool_], stratum: Codes, cluster: Codes) -> Difference:
    """The mean difference within strata, from values (shape (runs,)) of which each stratum holds both groups.

    Strata weigh as in a regression on their indicators. The degrees of freedom are those of the smaller group of
    clusters; where each cluster holds both groups they are those of all of them.
    """
    names, cluster = np.unique(cluster, return_inverse=True)
    _, stratum = np.unique(stratum, return_inverse=True)
    sums = _sums(values, in_group, stratum, cluster, len(names))
    together = sums.sum(axis=0)
    whole = _weigh(together)
    without = np.array([_weigh(together - one) for one in sums])
    if np.isnan(without).any():
        return Difference(whole, -np.inf, np.inf, 1.0, float("nan"), int(names[np.isnan(without)][0]))
    count = len(names)
    spread = float(np.sqrt((count - 1) / count * ((without - whole) ** 2).sum()))
    sides = [len(np.unique(cluster[side])) for side in (in_group, ~in_group)]
    freedom = max(1, (count if min(sides) == count else min(sides)) - 1)
    half = float(scipy.stats.t.ppf(1 - LEVEL / 2, freedom)) * spread
    worst = int(np.argmin(without * np.sign(whole)))
    p = float(2 * scipy.stats.t.sf(abs(whole) / spread, freedom)) if spread > 0 else float(whole == 0)
    return Difference(whole, whole - half, whole + half, p, float(without[worst]), int(names[worst]))


def _sums(values: Array, in_group: NDArray[np.bool_], stratum: Codes, cluster: Codes, clusters: int) -> Array:
    """Shape (clusters, 4, strata): runs and sums of values of the group, then of the others."""
    width = int(stratum.max(initial=0)) + 1
    place = cluster * width + stratum

    def sum_by_cluster(chosen: NDArray[np.bool_], weights: Array | None) -> Array:
        found = np.bincount(place[chosen], None if weights is None else weights[chosen], clusters * width)
        return found.reshape(clusters, width).astype(float)

    parts = [sum_by_cluster(side, weights) for side in (in_group, ~in_group) for weights in (None, values)]
    return np.stack(parts, axis=1)


def _weigh(sums: Array) -> float:
    """The difference from the sums of all strata; NaN where no stratum holds both groups."""
    runs, total, others, others_total = sums
    both = (runs > 0.5) & (others > 0.5)
    if not both.any():
        return float("nan")
    runs, total, others, others_total = (part[both] for part in (runs, total, others, others_total))
    weight = runs * others / (runs + others)
    return float((weight * (total / runs - others_total / others)).sum() / weight.sum())
