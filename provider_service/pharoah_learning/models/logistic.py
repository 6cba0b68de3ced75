"""Logistic regression with a ridge penalty, by Newton's method: log odds ratios that are adjusted for each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.models.newton import Fitted, Loss, minimise

CHUNK_RUNS = 1 << 13
"""Rows that are held as floating point numbers at once: 0.8 MB for 25 columns, which fits into a processor's cache."""
_LAST = 1e-6
"""The last step is one from which the penalised log likelihood is expected to improve by no more than this: 0.0014
standard errors. The error after a step of Newton's method is about the square of the one before it."""
_LAST_OF_SAMPLE = 1.0
"""The same for a sample, which is a start and no result."""
_ROUNDING = 1e-7
"""A log likelihood that is worse by such a share of it is not worse: its last digits are rounded."""
_TINY = 1e-3
"""Keeps the equations of the start solvable where a column is constant and has no penalty."""
_SAMPLED_ABOVE = 1 << 14
"""With more rows than this, the iteration starts from the fit of a sample."""
_SAMPLED = 11
"""Every eleventh row is in the sample. It is a prime number, so that rows which are ordered by their columns, with
powers of two as periods, are sampled evenly."""


class _Rows(NamedTuple):
    """What is fitted: rows of columns, each of them for so many runs."""

    columns: np.ndarray
    failures: np.ndarray
    runs: np.ndarray
    penalty: Array
    at_least_zero: NDArray[np.bool_] | None


def fit(
    columns: np.ndarray,
    failures: np.ndarray,
    penalty: Array,
    runs: np.ndarray | None = None,
    at_least_zero: NDArray[np.bool_] | None = None,
) -> Fitted:
    """Fit the log odds of failing on columns of any numeric type (shape (rows, width)).

    A row stands for `runs` runs (shape (rows,), one each by default), `failures` of which failed. Rows of runs that
    have equal columns may be given as one: the likelihood is the same. `penalty` (shape (width,)) is half the weight of
    each coefficient's square, which must be positive where columns may be constant or separate the outcomes.
    `at_least_zero` (shape (width,)): coefficients that may not be below zero. A step that does not improve the fit is
    halved.
    """
    rows = _Rows(columns, failures, np.ones(len(failures)) if runs is None else runs, penalty, at_least_zero)
    return _fit(rows, _LAST)


def likelihood_at(beta: Array, columns: np.ndarray, failures: np.ndarray, runs: np.ndarray) -> Loss:
    """The negative log likelihood at some coefficients, without a penalty, with its gradient and its curvature."""
    return _at(beta, _Rows(columns, failures, runs, np.zeros(len(beta)), None))


def _fit(rows: _Rows, last: float) -> Fitted:
    """The fit whose last step is expected to improve it by no more than `last`."""
    return minimise(lambda beta: _at(beta, rows), _start(rows), last, _ROUNDING, rows.at_least_zero)


def _start(rows: _Rows) -> Array:
    """Where the iteration starts: for many rows at the fit of a sample, which saves half of the passes; for few rows
    where the columns without a bound come nearest to giving all of them the same odds."""
    columns, failures, runs, penalty, at_least_zero = rows
    if len(failures) > _SAMPLED_ABOVE:
        return _fit(_sample(rows), _LAST_OF_SAMPLE).value
    odds = (failures.sum() + 0.5) / (runs.sum() - failures.sum() + 0.5)
    x = columns.T.astype(np.float32)
    start, free = np.zeros(len(x)), np.ones(len(x), dtype=bool) if at_least_zero is None else ~at_least_zero
    x = x[free]
    squares = (x * runs.astype(np.float32)) @ x.T + np.diag(2 * penalty[free] + _TINY)
    start[free] = np.log(odds) * scipy.linalg.cho_solve(scipy.linalg.cho_factor(squares), x @ runs)
    return start


def _sample(rows: _Rows) -> _Rows:
    """A sample of many rows. Where failures are rare all of them are in it, and the other rows stand for those that are
    left out: without a failure no constant fits."""
    columns, failures, runs, penalty, at_least_zero = rows
    chosen, failed = np.arange(len(failures)) % _SAMPLED == 0, failures > 0
    if _SAMPLED * np.count_nonzero(failed) <= len(failures):
        chosen |= failed
        runs = np.where(failed, runs, _SAMPLED * runs)
    sampled = np.ascontiguousarray(columns.T[:, chosen]).T
    return _Rows(sampled, failures[chosen], runs[chosen], penalty, at_least_zero)


def _at(beta: Array, rows: _Rows) -> Loss:
    """The penalised negative log likelihood, its gradient and its curvature.

    Rows are numbers of single precision, in which flags and counts are exact and which is twice as fast; what chunks of
    them sum up to is added with double precision.
    """
    columns, failures, runs, penalty, _ = rows
    loss, gradient, curvature = float(penalty @ beta**2), 2 * penalty * beta, np.diag(2 * penalty)
    for begin in range(0, len(failures), CHUNK_RUNS):
        chunk = slice(begin, begin + CHUNK_RUNS)
        x = np.array(columns[chunk].T, dtype=np.float32, order="C")  # a copy in any case: it is scaled below
        n, failed = runs[chunk].astype(np.float32), failures[chunk].astype(np.float32)
        eta = beta.astype(np.float32) @ x
        tail = np.exp(-np.abs(eta))
        p = np.where(eta < 0, tail, np.float32(1)) / (1 + tail)
        # The first part is the logarithm of 1 + exp(eta), without an overflow.
        loss += float(n @ (np.maximum(eta, 0) + np.log1p(tail)) - failed @ eta)
        gradient = gradient + x @ (n * p - failed)
        x *= np.sqrt(n * p * (1 - p))
        curvature = curvature + x @ x.T
    return Loss(loss, gradient, curvature)
