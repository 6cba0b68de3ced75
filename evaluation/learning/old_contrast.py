"""The contrast of pairs as it was before ADR 71, as a simpler method: one context at a time, and every pair shows the
spread of ordinary ones until it is called."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from pharoah_learning.models.contrasts import MAX_FALSE_RATE
from pharoah_learning.models.false_discovery import q_values
from pharoah_learning.models.mantel_haenszel import p_values
from pharoah_learning.observations import Observations, adjust, stratify

ROUNDS = 5


def old_contrast(seen: Observations) -> NDArray[np.bool_]:
    """The mask of the pairs that both judges call."""
    own, own_p = adjust(seen).odds, p_values(stratify(seen).counts.strata)
    known = ~np.isnan(own.value) & (own.variance > 0)
    value, weight = np.where(known, own.value, 0.0), np.divide(1.0, own.variance, out=np.zeros_like(own_p), where=known)
    bad: NDArray[np.bool_] = np.zeros(own_p.shape, dtype=bool)
    for _ in range(ROUNDS):
        ordinary = np.where(bad, 0.0, weight)
        others = ordinary.sum(axis=0) - ordinary
        compared = known & (others > 0)
        precision = np.where(compared, others, np.nan)
        excess = own.value - ((ordinary * value).sum(axis=0) - ordinary * value) / precision
        variance = own.variance + 1 / precision
        deviation = excess / np.sqrt(variance + _spread(excess[~bad], variance[~bad]))
        p = np.maximum(own_p, np.where(compared, scipy.stats.norm.sf(deviation), 1.0))
        before, bad = bad, q_values(p) <= MAX_FALSE_RATE
        if (before == bad).all():
            break
    return bad


def _spread(excess: NDArray[np.float64], variance: NDArray[np.float64]) -> float:
    """The variance with which half of all contrasts are as near to zero as half of a normal distribution is."""
    known = ~np.isnan(excess)
    squares, variances = excess[known] ** 2, variance[known]
    median = float(scipy.stats.chi2.median(1))

    def too_wide(spread: float) -> float:
        return float(np.median(squares / (variances + spread)) - median)

    return float(scipy.optimize.brentq(too_wide, 0.0, squares.max() / median)) if too_wide(0.0) > 0 else 0.0
