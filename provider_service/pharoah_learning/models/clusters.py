"""Clusters of versions that behave the same, from means that are measured with unequal noise.

A partition is worth what it predicts: every version is its cluster's centre plus the noise of its own measurement,
centres are drawn from a normal distribution whose mean and spread are estimated (empirical Bayes), and all sizes of
clusters are as likely. The integral over the centres has a closed form (the integrated classification likelihood of
Biernacki, Celeux and Govaert 2000, for known noise). Candidates come from the merge tree, and each is improved by
moving versions to their most likely cluster. The number of clusters needs no setting.

A criterion with a fixed penalty, as in BIC, merges small clusters that are clearly apart. It knows how many
versions there are, and not how well they are measured.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np
import scipy

from pharoah_learning.models.merge_tree import NOT_MEASURED, Array, Behaviours, Labels, cut, merge_tree
from pharoah_learning.models.rand_index import compute_adjusted_rand_index

MIN_ODDS = 150.0
"""How many times more likely one more cluster must make the data: very strong evidence (Kass and Raftery 1995)."""
MIN_SPREAD_ERRORS = 3.0
"""Centres are expected to lie at least so many standard errors of a typical version apart. Less could not be seen, and
a spread that follows the noise would make every cluster cheap."""
PATIENCE = 10
"""Numbers of clusters without an improvement after which larger ones are not tried."""
MAX_MOVES = 30
UNLIKE_FALSE_RATE = 0.01
"""The share of the versions of a known cluster that are called unlike anything known."""
RESAMPLES = 20


class Clusters(NamedTuple):
    """A partition of versions."""

    label: Labels
    """Shape (versions,): the cluster of each, numbered in the order in which they first appear."""
    centre: Array
    """Shape (clusters, quantities)."""
    error: Array
    """Standard errors of the centres."""


class Placed(NamedTuple):
    """Where a new version belongs."""

    cluster: int
    """The nearest cluster."""
    p: float
    """How probable so large a distance is for a version of that cluster."""

    @property
    def is_known(self) -> bool:
        """Whether the version behaves as its nearest cluster does; otherwise it is unlike anything known."""
        return self.p >= UNLIKE_FALSE_RATE


def find_clusters(seen: Behaviours) -> Clusters:
    """The most likely partition. The order of the versions does not matter. Raises ValueError without versions."""
    if not len(seen.mean):
        raise ValueError("no versions to cluster")
    order = np.lexsort(np.hstack([seen.mean, seen.error]).T)
    label = np.empty(len(order), dtype=np.int64)
    label[order] = _best(seen.select(order))
    return centres(seen, label)


def centres(seen: Behaviours, label: Labels) -> Clusters:
    """The clusters of a partition, numbered in the order in which they first appear."""
    _, first, code = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    weight, total = _sums(seen, rank[code])
    return Clusters(rank[code], total / weight, weight**-0.5)


def place(mean: Array, error: Array, known: Clusters) -> Placed:
    """The cluster that a new version, with arrays of the shape (quantities,), is nearest to, in standard errors.

    A version of a known cluster has a p-value below `UNLIKE_FALSE_RATE` in that share of the cases at most: its
    distance to its own cluster follows a chi-square distribution, and the nearest cluster is no farther.
    """
    distance = ((mean - known.centre) ** 2 / (error**2 + known.error**2)).sum(axis=-1)
    nearest = int(distance.argmin())
    return Placed(nearest, float(scipy.stats.chi2.sf(distance[nearest], len(mean))))


def stability(seen: Behaviours, found: Clusters, seed: int) -> float:
    """The mean agreement (adjusted Rand index) with the clusters of versions that are drawn with replacement, each
    measured with half of its runs. 1 for clusters that every sample shows. What was not measured stays so: noise of its
    standard error would spread the centres of clusters without a measurement over thousands.
    """
    rng = np.random.default_rng(seed)
    indices = []
    for _ in range(RESAMPLES):
        drawn = np.unique(rng.integers(0, len(seen.mean), len(seen.mean)))
        half = seen.select(drawn)
        noise = np.where(half.error < NOT_MEASURED, half.error, 0.0) * rng.standard_normal(half.mean.shape)
        noisy = Behaviours(half.mean + noise, half.error * np.sqrt(2))
        indices.append(compute_adjusted_rand_index(found.label[drawn], find_clusters(noisy).label))
    return float(np.mean(indices))


def _best(seen: Behaviours) -> Labels:
    tree = merge_tree(seen)
    best, best_cost, unimproved = np.zeros(len(seen.mean), dtype=np.int64), np.inf, 0
    for clusters in range(1, len(seen.mean) + 1):
        label = _move(seen, cut(tree, clusters))
        cost = _cost(seen, label)
        unimproved += 1
        if cost < best_cost:
            best, best_cost, unimproved = label, cost, 0
        if unimproved == PATIENCE:
            break
    return best


def _move(seen: Behaviours, label: Labels) -> Labels:
    """The partition after each version has moved to its most likely cluster, until none moves."""
    for _ in range(MAX_MOVES):
        weight, total = _sums(seen, label)
        distance = (seen.weight[:, None] * (seen.mean[:, None] - total / weight) ** 2).sum(axis=2)
        nearest = (distance - 2 * np.log(np.bincount(label))).argmin(axis=1)
        nearest = np.unique(nearest, return_inverse=True)[1]
        if np.array_equal(nearest, label):
            break
        label = nearest
    return label


def _cost(seen: Behaviours, label: Labels) -> float:
    """Twice the negative log likelihood of a partition, apart from what all partitions share."""
    weight, total = _sums(seen, label)
    centre, sizes = total / weight, np.bincount(label)
    scatter = (seen.weight * (seen.mean - centre[label]) ** 2).sum()
    middle, spread = _prior(centre, weight, MIN_SPREAD_ERRORS**2 / seen.weight.mean(axis=0))
    of_centres = np.log1p(spread * weight).sum() + ((centre - middle) ** 2 / (spread + 1 / weight)).sum()
    of_sizes = (
        scipy.special.gammaln(len(label) + len(sizes))
        - scipy.special.gammaln(len(sizes))
        - scipy.special.gammaln(sizes + 1).sum()
    )
    return float(scatter + of_centres + 2 * of_sizes + 2 * log(MIN_ODDS) * (len(sizes) - 1))


def _prior(centre: Array, weight: Array, least: Array) -> tuple[Array, Array]:
    """Mean and variance of the distribution of centres, per quantity, by the algorithm of expectation-maximisation."""
    middle, spread = centre.mean(axis=0), np.maximum(centre.var(axis=0), least)
    for _ in range(3):
        share = 1 / (spread + 1 / weight)
        middle = (share * centre).sum(axis=0) / share.sum(axis=0)
        variance = 1 / (1 / spread + weight)
        expected = variance * (middle / spread + weight * centre)
        spread = np.maximum(((expected - middle) ** 2 + variance).mean(axis=0), least)
    return middle, spread


def _sums(seen: Behaviours, label: Labels) -> tuple[Array, Array]:
    """The weight of each cluster, and its weighted total, both in the shape (clusters, quantities)."""
    weight = np.zeros((int(label.max()) + 1, seen.mean.shape[1]))
    total = np.zeros_like(weight)
    np.add.at(weight, label, seen.weight)
    np.add.at(total, label, seen.weight * seen.mean)
    return weight, total
