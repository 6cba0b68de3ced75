"""The tree in which versions join by how similarly they behave (Ward 1963), with each version's own noise.

Two groups join at the price of treating them as one: the increase in the sum of squares, each measured in its standard
error. That is twice the loss of log likelihood, in units of chi-square. Ward's criterion for equal noise would let a
version with two runs weigh as much as one with two hundred.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
NOT_MEASURED = 1e3
"""A standard error from which on a quantity counts as not measured; `version_behaviour` gives such ones this error."""


class Behaviours(NamedTuple):
    """How versions behave, as measured."""

    mean: Array
    """Shape (versions, quantities)."""
    error: Array
    """Standard errors of the means, in the same shape, all larger than 0. One of NOT_MEASURED or more stands for a
    quantity that was not measured; its mean is 0."""

    @property
    def weight(self) -> Array:
        """How much each mean counts: 1 over its variance."""
        return 1.0 / self.error**2

    def select(self, chosen: Labels) -> Behaviours:
        """The behaviours of some versions."""
        return Behaviours(self.mean[chosen], self.error[chosen])


def merge_tree(seen: Behaviours) -> Array:
    """All merges from single versions to one group, in the format of `scipy.cluster.hierarchy.linkage`.

    The shape is (versions - 1, 4): the two groups, the price, and the versions in the new group. Prices never fall.
    """
    count = len(seen.mean)
    weight, total = seen.weight.copy(), seen.weight * seen.mean
    price = np.full((count, count), np.inf)
    for row in range(count - 1):
        others = np.arange(row + 1, count)
        price[row, others] = price[others, row] = _prices(weight, total, row, others)
    nearest, lowest = price.argmin(axis=1), price.min(axis=1)
    name, size = np.arange(count), np.ones(count, dtype=np.int64)
    merges = np.zeros((count - 1, 4))
    for step in range(count - 1):
        into = int(lowest.argmin())
        gone = int(nearest[into])
        size[into] += size[gone]
        merges[step] = *sorted((name[into], name[gone])), lowest[into], size[into]
        name[into] = count + step
        weight[into] += weight[gone]
        total[into] += total[gone]
        price[gone], price[:, gone], lowest[gone], nearest[gone] = np.inf, np.inf, np.inf, -1
        left = np.flatnonzero((nearest >= 0) & (np.arange(count) != into))
        price[into, left] = price[left, into] = _prices(weight, total, into, left)
        outdated = left[(nearest[left] == into) | (nearest[left] == gone)]
        for row in (into, *outdated):
            nearest[row] = price[row].argmin()
            lowest[row] = price[row, nearest[row]]
        nearer = left[price[left, into] < lowest[left]]
        nearest[nearer], lowest[nearer] = into, price[nearer, into]
    merges[:, 2] = np.maximum.accumulate(merges[:, 2])
    return merges


def cut(tree: Array, clusters: int) -> Labels:
    """The group of each version when so many groups are left, counted from 0."""
    count = len(tree) + 1
    group = np.arange(count)
    for step, merge in enumerate(tree[: count - clusters]):
        group[np.isin(group, merge[:2].astype(np.int64))] = count + step
    return np.unique(group, return_inverse=True)[1].astype(np.int64)


def _prices(weight: Array, total: Array, one: int, others: Labels) -> Array:
    """The price of joining one group with each of the others."""
    difference = total[one] / weight[one] - total[others] / weight[others]
    found: Array = (weight[one] * weight[others] / (weight[one] + weight[others]) * difference**2).sum(axis=-1)
    return found
