"""Failure rates of versions with few runs: each borrows from its archetype, and that from its family.

No level is chosen. A version with few runs has the rate of its archetype, one with many has its own, and in between it
is a weighted mean (beta-binomial). How much a level weighs is learned: it is worth so many runs as predict each version
best from the others (empirical Bayes, Efron and Morris 1975; the leave-one-out form of the marginal likelihood).
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from pharoah_learning.models.mantel_haenszel import Array

_WEIGHTS = 2.0 ** np.arange(0, 15)
"""Runs that a level may be worth: 1 to 16,384."""


class Rates(NamedTuple):
    """The failure rate of each version."""

    rate: Array
    low: Array
    high: Array
    """The interval of the posterior at 95 %, with the rate in it: where a version nearly always fails and has no runs
    of its own, the mean of the posterior may be outside its quantiles."""
    archetype_weight: float
    """The runs that the rate of an archetype is worth for one of its versions."""
    family_weight: float
    """The runs that the rate of a family is worth for one of its archetypes."""


def shrunk_rates(failures: Array, runs: Array, archetype: NDArray[np.int64], family: NDArray[np.int64]) -> Rates:
    """Rates of versions, all arrays of the shape (versions,); `family` is that of the version's archetype.

    Raises ValueError when a version has more failures than runs.
    """
    if (failures > runs).any() or (failures < 0).any():
        raise ValueError("a version has more failures than runs, or fewer than none")
    weights = max(product(_WEIGHTS, _WEIGHTS), key=lambda pair: _predict(failures, runs, archetype, family, *pair))
    own_weight, family_weight = float(weights[0]), float(weights[1])
    expected = _compute_expected(failures, runs, archetype, family, family_weight)
    alpha, beta = failures + own_weight * expected, runs - failures + own_weight * (1 - expected)
    low, high = (scipy.stats.beta.ppf(level, alpha, beta) for level in (0.025, 0.975))
    rate = alpha / (alpha + beta)
    return Rates(rate, np.minimum(low, rate), np.maximum(high, rate), own_weight, family_weight)


def _compute_expected(
    failures: Array, runs: Array, archetype: NDArray[np.int64], family: NDArray[np.int64], family_weight: float
) -> Array:
    """What the other versions of each version's archetype, and the other archetypes of its family, let one expect."""
    total_failures, total_runs = failures.sum() + 0.5, runs.sum() + 1.0
    in_archetype = [np.bincount(archetype, part)[archetype] for part in (failures, runs)]
    in_family = [np.bincount(family, part)[family] for part in (failures, runs)]
    others = [whole - own for whole, own in zip(in_family, in_archetype, strict=True)]
    of_family = (others[0] + total_failures / total_runs) / (others[1] + 1)
    siblings = [whole - own for whole, own in zip(in_archetype, (failures, runs), strict=True)]
    expected: Array = (siblings[0] + family_weight * of_family) / (siblings[1] + family_weight)
    return np.clip(expected, 1e-9, 1 - 1e-9)


def _predict(
    failures: Array,
    runs: Array,
    archetype: NDArray[np.int64],
    family: NDArray[np.int64],
    own_weight: float,
    family_weight: float,
) -> float:
    """The log probability of each version's failures, given the others."""
    expected = _compute_expected(failures, runs, archetype, family, family_weight)
    alpha, beta = own_weight * expected, own_weight * (1 - expected)
    return float(
        (scipy.special.betaln(alpha + failures, beta + runs - failures) - scipy.special.betaln(alpha, beta)).sum()
    )
