"""Simpler ways to compare the repeats of a node with those of a fleet, on the same data.

Each takes the logarithms of the seconds of the nodes to test, shape (nodes, repeats), and of the healthy nodes of the
reference, of the same form, and returns which of the tested nodes it calls slower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, ttest_ind_from_stats

from pharoah_learning.fleet_comparison import LEVEL
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.models.run_differences import SLOW_QUANTILE

Called = NDArray[np.bool_]
FIXED = 0.05
"""A tolerance that operators often set."""
_DEVIATION_TO_SD = 1 / norm.ppf(0.75)


def similarity(tested: Array, reference: Array) -> Array:
    """One minus the one-sided area between the distribution of a node and the reference, over the mean of that.

    That is the similarity of SuperBench (Xiong and others, USENIX ATC 2024), made again from its description: the area
    between two distribution functions where the node is the slower one. The reference is the median over nodes.
    """
    centroid = np.exp(np.median(np.sort(reference, axis=1), axis=0))
    area = np.maximum(0.0, np.sort(np.exp(tested), axis=1) - centroid).mean(axis=1)
    found: Array = 1 - area / centroid.mean()
    return found


def kolmogorov_smirnov_p(tested: Array, reference: Array) -> Array:
    """One-sided p-values of each node against the pooled repeats (Smirnov 1948): exp(-2 D^2 n m / (n + m))."""
    pooled, n = np.sort(reference.ravel()), tested.shape[1]
    ordered = np.sort(tested, axis=1)
    below = np.searchsorted(pooled, ordered, side="left") / pooled.size
    distance = np.maximum(0.0, below - np.arange(n) / n).max(axis=1)
    found: Array = np.exp(-2 * distance**2 * n * pooled.size / (n + pooled.size))
    return found


def welch_p(tested: Array, reference: Array) -> Array:
    """One-sided p-values of each node against the pooled repeats (Welch 1947)."""
    m, s, n = reference.mean(), reference.std(ddof=1), reference.size
    of = (tested.mean(axis=1), tested.std(axis=1, ddof=1), tested.shape[1])
    found: Array = ttest_ind_from_stats(*of, m, s, n, equal_var=False, alternative="greater").pvalue
    return found


def _less_similar(least: float, tested: Array, reference: Array) -> Called:
    return similarity(tested, reference) < least


def _kolmogorov_smirnov(tested: Array, reference: Array) -> Called:
    return kolmogorov_smirnov_p(tested, reference) < LEVEL


def _welch(tested: Array, reference: Array) -> Called:
    return welch_p(tested, reference) < LEVEL


def _fixed(tested: Array, reference: Array) -> Called:
    found: Called = np.exp(tested).mean(axis=1) > (1 + FIXED) * np.median(np.exp(reference).mean(axis=1))
    return found


def _worst_z(tested: Array, reference: Array) -> Called:
    """Mean or slow quantile above the normal quantile of the level, in robust standard deviations."""
    called = np.zeros(len(tested), dtype=bool)
    for summary in (partial(np.mean, axis=1), partial(np.quantile, q=SLOW_QUANTILE, axis=1)):
        of, others = summary(tested), summary(reference)
        deviation = _DEVIATION_TO_SD * np.median(np.abs(others - np.median(others)))
        called |= of > np.median(others) + norm.isf(LEVEL / 2) * deviation
    return called


SIMPLER: Mapping[str, Callable[[Array, Array], Called]] = {
    "similarity below 0.95": partial(_less_similar, 0.95),
    "similarity below 0.99": partial(_less_similar, 0.99),
    "Kolmogorov-Smirnov, pooled": _kolmogorov_smirnov,
    "Welch, pooled": _welch,
    "worst z of mean and slow quantile": _worst_z,
    "mean 5 % slower": _fixed,
}
