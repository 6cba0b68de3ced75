"""Proportional hazards (Cox 1972) on spells with columns that may change from one spell to the next.

`fit_cox` maximises the whole partial likelihood, with Efron's correction of ties (1977): for tables of some ten
thousand spells. `fit_sampled` compares each failure with a few controls that are drawn from those at risk at that time
(nested case-control sampling; Thomas 1977, Goldstein and Langholz 1992): the likelihood of one failure is a conditional
logistic one, and its cost does not grow with the fleet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.models.newton import Fitted, Loss, minimise

_LAST = 1e-10
"""The last step of Newton's method is expected to improve the log likelihood by no more than this."""
_ROUNDING = 1e-9
"""A log likelihood that is worse by such a share of it is not worse: its last digits are rounded."""
Indices = NDArray[np.intp]


class Spells(NamedTuple):
    """Times in which units were observed with constant columns. One unit may have many spells, one after the other."""

    start: Array
    """A unit is at risk after this time."""
    stop: Array
    """It is at risk up to and at this time."""
    failed: NDArray[np.bool_]
    """Whether it failed at the end."""
    columns: np.ndarray
    """Shape (spells, width)."""


class SampledSets(NamedTuple):
    """Each failure with its controls."""

    members: Indices
    """Rows of spells, shape (failures, 1 + controls); the failure comes first. Sets that are smaller repeat their first
    control, which does not count."""
    counts: NDArray[np.bool_]
    """Which members count, in the same shape."""
    at_risk: Array
    """How many spells were at risk, shape (failures,)."""
    time: Array
    """When, shape (failures,)."""


def fit_cox(spells: Spells, penalty: Array) -> Fitted:
    """Log hazard ratios of the columns, by the whole partial likelihood. `penalty` as for `logistic.fit`.

    Raises ValueError without a failure.
    """
    if not spells.failed.any():
        raise ValueError("spells: nothing has failed")
    return _newton(spells.columns.shape[1], penalty, lambda beta: _efron(spells, beta))


def sample_sets(spells: Spells, controls: int, rng: np.random.Generator) -> SampledSets:
    """Draw at most `controls` controls for each failure, without replacement, from the other spells at risk then.

    Failures without any control say nothing and are left out.
    """
    order = np.argsort(spells.start, kind="stable")
    started, longest = spells.start[order], float((spells.stop - spells.start).max(initial=0.0))
    members, counts, at_risk, times = [], [], [], []
    failures = np.flatnonzero(spells.failed)
    for failure in failures[np.argsort(spells.stop[failures], kind="stable")]:
        time = spells.stop[failure]
        first, last = np.searchsorted(started, (time - longest * (1 + 1e-12), time))
        others = order[first:last]
        others = others[(spells.stop[others] >= time) & (others != failure)]
        if not len(others):
            continue
        drawn = others if len(others) <= controls else rng.choice(others, controls, replace=False, shuffle=False)
        padding = controls - len(drawn)
        members.append(np.concatenate([[failure], drawn, np.repeat(drawn[:1], padding)]))
        counts.append(np.arange(controls + 1) <= len(drawn))
        at_risk.append(len(others) + 1.0)
        times.append(time)
    shape = (len(members), controls + 1)
    return SampledSets(
        np.array(members, dtype=np.intp).reshape(shape),
        np.array(counts, dtype=bool).reshape(shape),
        np.array(at_risk),
        np.array(times, dtype=float),
    )


def fit_sampled(
    columns: np.ndarray, sets: SampledSets, penalty: Array, at_least_zero: NDArray[np.bool_] | None = None
) -> Fitted:
    """Log hazard ratios by the conditional likelihood of sampled sets. Raises ValueError without a set.

    `columns` has the rows that `sets.members` names; the covariance is the inverse of the information.
    `at_least_zero`: coefficients that may not be below zero.
    """
    if not len(sets.members):
        raise ValueError("sets: nothing has failed")
    members = columns[sets.members].astype(float)  # shape (failures, 1 + controls, width)
    return _newton(columns.shape[1], penalty, lambda beta: _conditional(members, sets.counts, beta), at_least_zero)


def cumulative_hazard(columns: np.ndarray, sets: SampledSets, beta: Array) -> Array:
    """The cumulative hazard at `sets.time` of a unit whose columns are all 0 (Langholz and Borgan 1997): each failure
    adds one over the total hazard ratio at risk, which the drawn members stand for."""
    ratios = np.where(sets.counts, np.exp(columns[sets.members].astype(float) @ beta), 0.0)
    total = ratios.sum(axis=1) * sets.at_risk / sets.counts.sum(axis=1)
    return np.cumsum(1 / total)


def _newton(
    width: int, penalty: Array, at: Callable[[Array], Loss], at_least_zero: NDArray[np.bool_] | None = None
) -> Fitted:
    """Minimise minus the log likelihood with a ridge penalty."""

    def penalise(beta: Array) -> Loss:
        value, gradient, curvature = at(beta)
        return Loss(value + float(penalty @ beta**2), gradient + 2 * penalty * beta, curvature + 2 * np.diag(penalty))

    return minimise(penalise, np.zeros(width), _LAST, _ROUNDING, at_least_zero)


def _conditional(members: np.ndarray, counts: NDArray[np.bool_], beta: Array) -> Loss:
    scores = np.where(counts, members @ beta, -np.inf)
    largest = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=1, keepdims=True)
    shares = weights / total
    loss = float((np.log(total) + largest - scores[:, :1]).sum())
    means = np.einsum("fm,fmw->fw", shares, members)
    flat = members.reshape(-1, members.shape[2])
    curvature = flat.T @ (flat * shares.reshape(-1, 1)) - means.T @ means
    return Loss(loss, (means - members[:, 0]).sum(axis=0), curvature)


def _efron(spells: Spells, beta: Array) -> Loss:
    columns = spells.columns.astype(float)
    scores = columns @ beta
    largest = float(scores.max())
    weights = np.exp(scores - largest)
    loss, gradient, curvature = 0.0, np.zeros(len(beta)), np.zeros((len(beta), len(beta)))
    risk = _RiskSums(spells, columns, weights)
    for time in np.unique(spells.stop[spells.failed]):
        ties = np.flatnonzero(spells.failed & (spells.stop == time))
        zero, first, second = risk.at(time)
        tied = weights[ties, None] * columns[ties]
        for number in range(len(ties)):
            share = number / len(ties)
            total = zero - share * weights[ties].sum()
            mean = (first - share * tied.sum(axis=0)) / total
            loss += np.log(total)
            gradient += mean
            curvature += (second - share * (tied.T @ columns[ties])) / total - np.outer(mean, mean)
        loss += len(ties) * largest - scores[ties].sum()
        gradient -= columns[ties].sum(axis=0)
    return Loss(float(loss), gradient, curvature)


class _RiskSums:
    """Sums of weights, weighted columns and their products over all spells at risk at a time."""

    def __init__(self, spells: Spells, columns: np.ndarray, weights: Array) -> None:
        width = columns.shape[1]
        products = weights[:, None, None] * columns[:, :, None] * columns[:, None, :]
        sums = np.concatenate([weights[:, None], weights[:, None] * columns, products.reshape(-1, width**2)], axis=1)
        self._width = width
        self._stops, self._starts = np.sort(spells.stop), np.sort(spells.start)
        self._by_stop = _from_the_end(sums[np.argsort(spells.stop, kind="stable")])
        self._by_start = _from_the_end(sums[np.argsort(spells.start, kind="stable")])

    def at(self, time: float) -> tuple[float, Array, Array]:
        """Spells that have begun before this time and end at it or later."""
        found = self._by_stop[np.searchsorted(self._stops, time, side="left")]
        found = found - self._by_start[np.searchsorted(self._starts, time, side="left")]
        width = self._width
        return float(found[0]), found[1 : width + 1], found[width + 1 :].reshape(width, width)


def _from_the_end(rows: Array) -> Array:
    """Sums of each row and all after it; the last one is 0."""
    sums: Array = np.concatenate([np.cumsum(rows[::-1], axis=0)[::-1], np.zeros((1, rows.shape[1]))])
    return sums
