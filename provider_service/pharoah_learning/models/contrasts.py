"""Whether a context is bad for one archetype in particular: a difference in differences of log odds ratios.

More runs make a plain association worse, not better: it detects that a context is slightly worse for everybody, and
what a confounder that nobody measured does to everybody. Both are the same for all archetypes. So the log odds ratio of
a context within one archetype is compared with that of the same context within all other archetypes; what is common to
them cancels. A hidden cause that is specific to one pair does not cancel, and only a randomised campaign shows it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from pharoah_learning.models.false_discovery import q_values
from pharoah_learning.models.mantel_haenszel import Array, LogOddsRatio

LEAST_PAIRS = 20
"""Pairs from which their spread is estimated at least."""
ROUNDS = 5
"""Times that all is computed at most; two or three are usual."""
LARGEST_FALSE_RATE = 0.05
"""The share of pairs that are called bad, and are not, on average."""


class Contrasts(NamedTuple):
    """One entry for each archetype (rows) and context (columns)."""

    excess: LogOddsRatio
    """How much larger the log odds ratio of the context is within the archetype than within the others."""
    excess_p: Array
    """One-sided p of no excess; 1 where it cannot be estimated."""
    p: Array
    """The larger of this and of that of the association itself: both must be refuted."""


def contrasts(own: LogOddsRatio, own_p: Array) -> Contrasts:
    """All pairs of an archetype and a context at once, from what each context does within each archetype alone.

    The others are averaged by their precision. A pair that is found to be bad is no comparison for others: it is left
    out of theirs, and all is computed once more.
    """
    known = ~np.isnan(own.value) & (own.variance > 0)
    value, weight = np.where(known, own.value, 0.0), np.divide(1.0, own.variance, out=np.zeros_like(own_p), where=known)
    bad = np.zeros(own_p.shape, dtype=bool)
    for _ in range(ROUNDS):
        ordinary = np.where(bad, 0.0, weight)
        weight_of_others = ordinary.sum(axis=0) - ordinary
        sum_of_others = (ordinary * value).sum(axis=0) - ordinary * value
        compared = known & (weight_of_others > 0)
        precision = np.where(compared, weight_of_others, np.nan)
        excess = LogOddsRatio(own.value - sum_of_others / precision, own.variance + 1 / precision)
        spread = heterogeneity(LogOddsRatio(excess.value[~bad], excess.variance[~bad]))
        excess = LogOddsRatio(excess.value, excess.variance + spread)
        excess_p = np.where(compared, scipy.stats.norm.sf(excess.value / np.sqrt(excess.variance)), 1.0)
        found = Contrasts(excess, excess_p, np.maximum(own_p, excess_p))
        before, bad = bad, q_values(found.p) <= LARGEST_FALSE_RATE
        if (before == bad).all():
            break
    return found


def heterogeneity(excess: LogOddsRatio) -> float:
    """How much the contrasts of ordinary pairs vary beyond chance, as a variance of log odds ratios.

    What a hidden cause does is not exactly the same for all archetypes. With many runs such small differences would be
    found significant, so their spread counts as noise. It is the one with which half of all contrasts are as near to
    zero as half of a normal distribution is: most pairs are ordinary, and a few large contrasts do not matter (an
    empirical null, Efron 2004).
    """
    known = ~np.isnan(excess.value) & (excess.variance > 0)
    if known.sum() < LEAST_PAIRS:
        return 0.0
    squares, variances = excess.value[known] ** 2, excess.variance[known]

    def too_wide(spread: float) -> float:
        return float(np.median(squares / (variances + spread)) - scipy.stats.chi2.median(1))

    largest = float(squares.max() / scipy.stats.chi2.median(1))
    return float(scipy.optimize.brentq(too_wide, 0.0, largest)) if too_wide(0.0) > 0 else 0.0
