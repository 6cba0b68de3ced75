"""Effects of many facts where a hidden cause stands behind several of them: the approach of null treatments.

A hidden cause that many facts follow, such as a bad batch of machines, makes all of them look harmful, also beside each
other: none of them measures the cause exactly. But it shows in two places. Its facts are correlated beyond what the
recorded confounders explain, which a factor analysis finds; and what it adds to the coefficient of each fact is
proportional to the weight of the fact in the estimate of the factor. Most facts do nothing by themselves, so the
proportion is found by a regression in which few facts with effects of their own count as outliers. What is left of each
coefficient is the fact's own effect (Miao, Hu, Ogburn and Zhou 2023; Wang, Zhao, Hastie and Owen 2017).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pharoah_learning.models.mantel_haenszel import Array

MIN_COLUMNS = 5
"""Columns that a factor stands behind at least. With fewer it is not known which of them have effects of their own."""
MAX_FACTORS = 5
OUTLIER_DEVIATION = 2.0
"""A column whose coefficient is so many standard errors away from what the factors explain has an effect of its own."""
TRACY_WIDOM = 2.023
"""The 99 % quantile of the Tracy-Widom distribution of order 1 (Johnstone 2001)."""
ROUNDS = 100
_ENOUGH = 1e-6


class OwnEffects(NamedTuple):
    """Coefficients without what hidden factors add to them."""

    value: Array
    covariance: Array
    factors: int
    """How many hidden factors were found."""


def own_effects(value: Array, covariance: Array, residuals: Array) -> OwnEffects:
    """Effects of columns by themselves.

    `value` (shape (columns,)) and `covariance` are those of a joint regression; `residuals` (shape (runs, columns)) are
    the columns without what the recorded confounders explain of them.
    """
    weights = factor_weights(residuals)
    if not weights.size:
        return OwnEffects(value, covariance, 0)
    errors = np.sqrt(np.diag(covariance))
    added = _least_absolute(value / errors, weights / errors[:, None])
    estimate = np.zeros((weights.shape[1], len(value)))
    ordinary = np.ones(len(value), dtype=bool)
    for _ in range(ROUNDS):
        before = ordinary
        ordinary = np.abs(value - weights @ added) <= OUTLIER_DEVIATION * errors
        if (before == ordinary).all() or ordinary.sum() <= weights.shape[1]:
            break
        estimate = _least_squares(weights, covariance, ordinary)
        added = estimate @ value
    keep = np.eye(len(value)) - weights @ estimate
    return OwnEffects(keep @ value, keep @ covariance @ keep.T, weights.shape[1])


def factor_weights(residuals: Array) -> Array:
    """Shape (columns, factors): by which weights the columns estimate each hidden factor that several of them follow.

    A factor is an eigenvalue of the correlations that is larger than chance makes the largest one (Johnstone 2001).
    """
    runs, width = residuals.shape
    if runs < 2 or not width:
        return np.zeros((width, 0))
    spread = residuals.std(axis=0)
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    correlation = (residuals * scale).T @ (residuals * scale) / runs
    np.fill_diagonal(correlation, 1.0)
    factors = min(MAX_FACTORS, int((np.linalg.eigvalsh(correlation) > _largest_by_chance(runs, width)).sum()))
    loadings = _loadings(correlation, factors)
    wide = _columns_behind(loadings) >= MIN_COLUMNS
    ridge = 1e-6 * np.eye(width)
    return np.asarray(scale[:, None] * np.linalg.solve(correlation + ridge, loadings[:, wide]))


def _largest_by_chance(runs: int, width: int) -> float:
    """The largest eigenvalue of the correlations of independent columns is smaller with a probability of 99 %."""
    sides = np.sqrt(runs - 1), np.sqrt(width)
    centre, scale = sum(sides) ** 2, sum(sides) * sum(1 / side for side in sides) ** (1 / 3)
    return float((centre + TRACY_WIDOM * scale) / runs)


def _loadings(correlation: Array, factors: int) -> Array:
    """Principal axis factoring: the correlations that factors explain, with communalities by iteration."""
    communality = 1 - 1 / np.diag(np.linalg.inv(correlation + 1e-6 * np.eye(len(correlation))))
    loadings = np.zeros((len(correlation), factors))
    for _ in range(ROUNDS if factors else 0):
        reduced = correlation.copy()
        np.fill_diagonal(reduced, communality)
        values, vectors = np.linalg.eigh(reduced)
        loadings = vectors[:, -factors:] * np.sqrt(np.maximum(values[-factors:], 0))
        before, communality = communality, np.minimum((loadings**2).sum(axis=1), 0.99)
        if np.abs(before - communality).max() < _ENOUGH:
            break
    return loadings


def _columns_behind(loadings: Array) -> Array:
    """How many columns each factor stands behind: one over the sum of the squared shares in its variance."""
    squares = loadings**2
    total = squares.sum(axis=0)
    return np.asarray(np.divide(total**2, (squares**2).sum(axis=0), out=np.zeros_like(total), where=total > 0))


def _least_absolute(value: Array, weights: Array) -> Array:
    """The regression of the values on the weights with the least sum of absolute deviations, by reweighting."""
    added: Array = np.zeros(weights.shape[1])
    importance = np.ones(len(value))
    for _ in range(ROUNDS):
        scaled = weights * importance[:, None]
        before, added = added, np.asarray(np.linalg.lstsq(scaled.T @ weights, scaled.T @ value, rcond=None)[0])
        importance = 1 / np.maximum(np.abs(value - weights @ added), 1e-3)
        if np.abs(before - added).max() < _ENOUGH:
            break
    return added


def _least_squares(weights: Array, covariance: Array, ordinary: np.ndarray) -> Array:
    """The matrix that estimates what the factors add from the coefficients of ordinary columns."""
    own = np.linalg.inv(covariance[np.ix_(ordinary, ordinary)])
    chosen = weights[ordinary]
    found = np.zeros((weights.shape[1], len(weights)))
    found[:, ordinary] = np.linalg.solve(chosen.T @ own @ chosen, chosen.T @ own)
    return found
