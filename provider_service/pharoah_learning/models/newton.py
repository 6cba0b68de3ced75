"""Newton's method for convex losses of coefficients, some of which may not be below zero.

Bounds are kept as in D. P. Bertsekas, Projected Newton methods for optimization problems with simple constraints (SIAM
Journal on Control and Optimization 20, 1982): coefficients at their bound that the loss would push below it stay there,
the others take a step of Newton's method, and what is below zero then is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from pharoah_learning.models.mantel_haenszel import Array

MAX_ITERATIONS = 100
_MIN_SCALE = 1e-6
"""A step that is halved further than to this share is taken as it is."""


class Fitted(NamedTuple):
    """Coefficients and their covariance, in the order of the columns. A coefficient at its bound has no variance."""

    value: Array
    covariance: Array


class Loss(NamedTuple):
    """A loss at some coefficients."""

    value: float
    gradient: Array
    curvature: Array


def minimise(
    at: Callable[[Array], Loss],
    start: Array,
    last: float,
    rounding: float,
    at_least_zero: NDArray[np.bool_] | None = None,
) -> Fitted:
    """The coefficients with the smallest loss.

    `start` keeps the bounds of `at_least_zero` (which coefficients may not be below zero; none by default). The last
    step is one from which the loss is expected to fall by no more than `last`. A loss that is larger by the share
    `rounding` of it is not larger, because its last digits are rounded; a step that makes it larger is halved.
    """
    bounded = np.zeros(len(start), dtype=bool) if at_least_zero is None else at_least_zero
    beta, here = start, at(start)
    for _ in range(MAX_ITERATIONS):
        free = ~(bounded & (beta <= 0) & (here.gradient > 0))
        step = _step(here, free)
        expected = here.gradient @ step / 2
        if expected <= last:
            beta = _within(beta - step, bounded)
            break
        scale = 1.0
        while (then := at(moved := _within(beta - scale * step, bounded))).value > here.value + rounding * abs(
            here.value
        ) and scale > _MIN_SCALE:
            scale /= 2
        beta, here = moved, then
    return Fitted(beta, _covariance(here, ~(bounded & (beta <= 0))))


def _step(here: Loss, free: NDArray[np.bool_]) -> Array:
    step = np.zeros(len(free))
    step[free] = scipy.linalg.cho_solve(scipy.linalg.cho_factor(_part(here.curvature, free)), here.gradient[free])
    return step


def _part(curvature: Array, free: NDArray[np.bool_]) -> Array:
    """Its rows and columns that are free; the whole where all of them are, without a copy."""
    return curvature if free.all() else curvature[np.ix_(free, free)]


def _within(beta: Array, bounded: NDArray[np.bool_]) -> Array:
    return np.where(bounded, np.maximum(beta, 0.0), beta)


def _covariance(here: Loss, free: NDArray[np.bool_]) -> Array:
    found = np.zeros_like(here.curvature)
    found[np.ix_(free, free)] = scipy.linalg.cho_solve(
        scipy.linalg.cho_factor(_part(here.curvature, free)), np.eye(int(free.sum()))
    )
    return found
