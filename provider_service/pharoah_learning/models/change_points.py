"""Where a series of versions begins to behave otherwise: exact segmentation by dynamic programming.

The series is cut so that the sum of squares around the means of its pieces, in standard errors, plus a price for each
cut is least (optimal partitioning, Jackson et al. 2005; first versions of pieces that can never be best again are
dropped, as in PELT, Killick et al. 2012). Every measurement brings its own noise.
"""

from __future__ import annotations

import numpy as np
import scipy

from pharoah_learning.models.merge_tree import Behaviours

FALSE_RATE = 0.01
"""The share of series without a change in which a change is found, about."""


def price(versions: int, quantities: int) -> float:
    """What a cut must gain: what the best of so many cuts gains by chance in `FALSE_RATE` of the series.

    For one quantity and 300 versions this is 17.2, as 3 log(versions), the usual penalty of BIC, is 17.1. For few
    versions, or many quantities, the latter finds too many changes, or too few.
    """
    return float(scipy.stats.chi2.isf(FALSE_RATE / max(versions, 1), quantities))


def change_points(seen: Behaviours) -> list[int]:
    """The first version of each piece but the first, by its number, of versions in their order."""
    count, quantities = seen.mean.shape
    cut_price = price(count, quantities)
    weight, total, squares = (
        np.vstack([np.zeros(quantities), np.cumsum(part, axis=0)])
        for part in (seen.weight, seen.weight * seen.mean, seen.weight * seen.mean**2)
    )
    least = np.full(count + 1, -cut_price)
    """The least cost of the versions before each one."""
    begins = np.zeros(count + 1, dtype=np.int64)
    open_begins = np.zeros(1, dtype=np.int64)
    for end in range(1, count + 1):
        inside = total[end] - total[open_begins]
        scatter = squares[end] - squares[open_begins] - inside**2 / (weight[end] - weight[open_begins])
        cost = least[open_begins] + scatter.sum(axis=1)
        best = int(cost.argmin())
        least[end], begins[end] = cost[best] + cut_price, open_begins[best]
        open_begins = np.append(open_begins[cost <= least[end]], end)
    found, at = [], int(begins[count])
    while at > 0:
        found.append(at)
        at = int(begins[at])
    return found[::-1]
