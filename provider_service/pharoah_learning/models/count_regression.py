"""Regression of counts of events on columns, with a variance that grows faster than the mean.

The mean is log-linear, and the variance is that of the negative binomial distribution, mean + dispersion x mean^2
(A. C. Cameron, P. K. Trivedi, Regression Analysis of Count Data, 1998): errors of devices come in bursts, and a Poisson
distribution would take a few bursts for strong evidence.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.models.newton import Loss, minimise

ROUNDS = 5
"""Times that the dispersion is estimated, by its moments, from the means that were fitted with the one before."""
_LAST = 1e-6
"""The last step improves the penalised log likelihood by no more than this."""
_ROUNDING = 1e-12
_MAX_LOG = 50.0
"""The largest logarithm of a mean; it keeps numbers finite while steps are tried."""


def fit_counts(columns: NDArray[np.floating], counts: Array, penalty: float) -> Array:
    """Coefficients of the logarithm of the mean, shape (width + 1,), with the constant last.

    `columns` has the shape (rows, width); `counts` (shape (rows,)) need not be whole numbers. `penalty` is the
    weight of half the square of each coefficient but the constant; it is positive where columns may be constant. Raises
    ValueError when nothing was counted.
    """
    if not counts.sum() > 0:
        raise ValueError("counts: nothing was counted")
    rows = np.concatenate([np.asarray(columns, dtype=float), np.ones((len(counts), 1))], axis=1)
    penalties = np.append(np.full(columns.shape[1], float(penalty)), 0.0)
    found = np.append(np.zeros(columns.shape[1]), np.log(counts.mean()))
    dispersion = 0.0
    for _ in range(ROUNDS):
        mean = np.exp(np.minimum(rows @ found, _MAX_LOG))
        dispersion = max(0.0, float(((counts - mean) ** 2 - mean).sum() / (mean**2).sum()))
        found = minimise(_loss(rows, counts, penalties, dispersion), found, _LAST, _ROUNDING).value
    return found


def _loss(rows: Array, counts: Array, penalties: Array, dispersion: float) -> Callable[[Array], Loss]:
    """The negative log likelihood with this dispersion, plus the penalties. It is convex for each dispersion."""

    def at(beta: Array) -> Loss:
        logs = np.minimum(rows @ beta, _MAX_LOG)
        mean = np.exp(logs)
        wide, log_wide = 1 + dispersion * mean, np.log1p(dispersion * mean)
        spread = log_wide / dispersion if dispersion else mean  # its limit is the mean of a Poisson distribution
        value = (spread + counts * (log_wide - logs)).sum() + penalties @ beta**2 / 2
        gradient = rows.T @ ((mean - counts) / wide) + penalties * beta
        curvature = (rows * (mean * (1 + dispersion * counts) / wide**2)[:, None]).T @ rows + np.diag(penalties)
        return Loss(float(value), gradient, curvature)

    return at
