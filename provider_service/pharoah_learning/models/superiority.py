"""How often a value of one group is larger than one of another group, with an interval that holds for few values.

The estimate is the statistic of Mann and Whitney (1947) as a probability: 0.5 where the groups do not differ, 1 where
every value of the first is larger. Nothing is assumed about the distributions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from pharoah_learning.models.mantel_haenszel import Array

CONFIDENCE_LEVEL = 0.95
_EDGE = 1e-9
"""The variance is zero at 0 and at 1, so that the ends of an interval are looked for between."""


class Superiority(NamedTuple):
    """The probability that a value of the first group is larger; ties count half."""

    value: float
    low: float
    high: float
    """The interval at 95 %: method 5 of Newcombe (2006), the one that he recommends."""


def superiority(first: Array, second: Array) -> Superiority:
    """Compare two groups of numbers. Without a value in one of them nothing is known: (0.5, 0, 1)."""
    m, n = len(first), len(second)
    if not m or not n:
        return Superiority(0.5, 0.0, 1.0)
    differences = np.subtract.outer(np.asarray(first, dtype=float), np.asarray(second, dtype=float))
    value = float((np.sign(differences).sum() / (m * n) + 1) / 2)
    z = float(scipy.stats.norm.ppf((1 + CONFIDENCE_LEVEL) / 2))

    def beyond(theta: float) -> float:
        return (value - theta) ** 2 - z * z * _variance(theta, m, n)

    return Superiority(
        value,
        0.0 if value <= 0 else float(scipy.optimize.brentq(beyond, 0.0, min(value, 1 - _EDGE))),
        1.0 if value >= 1 else float(scipy.optimize.brentq(beyond, max(value, _EDGE), 1.0)),
    )


def _variance(theta: float, m: int, n: int) -> float:
    """The variance of the estimate where the truth is `theta`, with both groups as large as they are on average."""
    size = (m + n) / 2
    spread = (1 - theta) / (2 - theta) + theta / (1 + theta)
    return theta * (1 - theta) * (1 + (size - 1) * spread) / (m * n)
