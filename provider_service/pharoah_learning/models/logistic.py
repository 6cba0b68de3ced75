"""Logistic regression with a ridge penalty, by Newton's method: log odds ratios that are adjusted for each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from pharoah_learning.models.mantel_haenszel import Array

MOST_ITERATIONS = 100
CHUNK_RUNS = 1 << 16
"""Rows that are held as floating point numbers at once: 13 MB for 25 columns."""
_ENOUGH = 1e-8
"""Improvement of the penalised log likelihood, per unit of it, at which the iteration ends."""


class Fitted(NamedTuple):
    """Coefficients and their covariance, in the order of the columns."""

    value: Array
    covariance: Array


def fit(columns: np.ndarray, failed: np.ndarray, penalty: Array) -> Fitted:
    """Fit the log odds of `failed` (shape (runs,)) on columns of any numeric type (shape (runs, width)).

    `penalty` (shape (width,)) is half the weight of each coefficient's square, which must be positive where columns may
    be constant or separate the outcomes. A step that does not improve the fit is halved.
    """
    beta = np.zeros(columns.shape[1])
    loss, gradient, curvature = _at(beta, columns, failed, penalty)
    for _ in range(MOST_ITERATIONS):
        factor = cho_factor(curvature)
        step, scale = cho_solve(factor, gradient), 1.0
        while (then := _at(beta - scale * step, columns, failed, penalty))[0] > loss and scale > 1e-6:
            scale /= 2
        before, beta = loss, beta - scale * step
        loss, gradient, curvature = then
        if before - loss <= _ENOUGH * abs(before):
            break
    return Fitted(beta, cho_solve(cho_factor(curvature), np.eye(len(beta))))


def _at(beta: Array, columns: np.ndarray, failed: np.ndarray, penalty: Array) -> tuple[float, Array, Array]:
    """The penalised negative log likelihood, its gradient and its curvature."""
    loss, gradient, curvature = float(penalty @ beta**2), 2 * penalty * beta, np.diag(2 * penalty)
    for begin in range(0, len(failed), CHUNK_RUNS):
        x, y = columns[begin : begin + CHUNK_RUNS].astype(float), failed[begin : begin + CHUNK_RUNS].astype(float)
        eta = x @ beta
        p = expit(eta)
        loss += float(np.logaddexp(0, eta).sum() - y @ eta)
        gradient = gradient + x.T @ (p - y)
        curvature = curvature + (x * (p * (1 - p))[:, None]).T @ x
    return loss, gradient, curvature
