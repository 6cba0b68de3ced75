"""Hazard models of a fleet: how soon a unit fails, and of what, from the features of its signals.

For each resource there is one proportional hazards model in which failures of other resources only end the observation
(competing causes; Prentice and others 1978). For each horizon there is one logistic model of the probability to fail
within it. Hazards are not log-linear in what is measured, so the effect of a feature may bend (`Pieces`). Archetype
groups share coefficients as far as their failures do not show otherwise (`models.pooling`).

Runs that end before a horizon without a failure are no answer for it. Those that stay stand for them, with weights that
are one over the probability to be still observed (Robins and Rotnitzky 1992): users cancel slow runs more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.calibration import Calibration, calibrate
from pharoah_learning.models.cox import Spells, cumulative_hazard, fit_sampled, sample_sets
from pharoah_learning.models.logistic import fit
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.models.pooling import Ridge, pooled_columns

HORIZONS = (1, 6, 24)
"""Hours."""
CONTROLS = 200
"""Controls of each failure: with 200 the coefficients are within 0.3 standard errors of the full likelihood
(`python -m evaluation survival --part titan`)."""
RIDGE = Ridge(common=30.0, group=300.0)
"""On the scale of failures and of columns with a spread of one."""
QUIET_SHARE = 0.05
"""Share of the hours without a failure within the longest horizon that logistic models are fitted on, with weights."""
LARGEST_WEIGHT = 20.0
"""The largest weight of an hour that stands for hours of cancelled runs."""
KNOTS = (0.9, 0.99)
NEAR_KNOTS = (0.85, 0.95)
"""Quantiles of a feature at which its effect may bend: of all hours, and of those before failures. What matters is in
rare large values, because each of several ways to degrade moves other features."""
REACH = 15.0
"""Values count up to so many standard deviations of the widest piece: a few wild ones would decide the fit."""
CHUNK_UNITS = 2048
"""Units that are scored at once: 34 features of so many take 0.3 MB."""
_NOTHING = -30.0
"""The logarithm of the hazard of a resource of which nothing has failed."""
Columns = NDArray[np.float32]


class Fleet(NamedTuple):
    """Units that were observed hour by hour from the same hour of their life on."""

    names: tuple[str, ...]
    """Names of the features."""
    resources: tuple[str, ...]
    groups: tuple[str, ...]
    features: Columns
    """After each hour, shape (units, hours, features)."""
    last: NDArray[np.intp]
    """The last hour in which each unit was observed."""
    cause: NDArray[np.intp]
    """What it failed of within the hour after: 0 when it did not fail, else one plus the number of the resource."""
    group: NDArray[np.intp]
    """The number of its archetype group, -1 for none."""

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Shape (units, hours)."""
        return np.arange(self.features.shape[1]) <= self.last[:, None]


class Scores(NamedTuple):
    """What the models say of units."""

    risk: Array
    """Orders units by how soon they fail, of anything; larger is sooner. Shape (units,). It is the mean of three
    logarithms: of the hazard, and of the odds to fail within the two longest horizons."""
    probability: Array
    """The probability of a failure within each horizon, calibrated, shape (units, horizons)."""
    hazard: Array
    """The hazard of each resource, per hour, shape (units, resources)."""


class Pieces(NamedTuple):
    """Bounds of piecewise linear effects: a piece of a feature is its value, or a lower bound where that is larger."""

    low: Columns
    """Shape (pieces, features)."""
    high: Columns
    """The highest value of each feature that counts, shape (features,)."""

    def columns(self, features: NDArray[np.floating]) -> Columns:
        """Shape (rows, pieces x features); the first columns are the features themselves, nearly never clipped."""
        values = np.minimum(features, self.high, dtype=np.float32)
        found: Columns = np.maximum(values[:, None, :], self.low).reshape(len(features), -1)
        return found


@dataclass(frozen=True, kw_only=True)
class HazardModel:
    """Arrays that score units; nothing else is needed."""

    names: tuple[str, ...]
    resources: tuple[str, ...]
    groups: tuple[str, ...]
    pieces: Pieces
    common: Columns
    """Coefficients of all pieces, shape (pieces x features, resources + horizons)."""
    group: Columns
    """What is added for each group and last for none, of the features themselves: (groups + 1, features, ...)."""
    constant: Columns
    """Shape (groups + 1, resources + horizons)."""
    calibrations: tuple[Calibration, ...]
    """For each horizon, of its logit."""

    def score(self, features: NDArray[np.floating], group: NDArray[np.intp]) -> Scores:
        """Score units in one pass. `features` has the shape (units, features) in the order of `names`; `group` is -1
        for a unit of none."""
        found = self.outputs(features, group).astype(float)
        hazard, logits = np.exp(found[:, : len(self.resources)]), found[:, len(self.resources) :]
        probability = np.stack([one(logits[:, at]) for at, one in enumerate(self.calibrations)], axis=1)
        risk = (logits[:, -1] + logits[:, -2] + np.log(hazard.sum(axis=1))) / 3
        return Scores(risk, probability, hazard)

    def outputs(self, features: NDArray[np.floating], group: NDArray[np.intp]) -> Columns:
        """The logarithms of the hazards, and the logits that are not calibrated: (units, resources + horizons).

        Units are taken group by group and some thousand at a time, with features along the first axis, so that what is
        computed stays in a processor's cache.
        """
        found = np.empty((len(features), self.constant.shape[1]), dtype=np.float32)
        width = len(self.names)
        for number in np.unique(group):
            coefficients = self.common.copy()
            coefficients[:width] += self.group[number]
            rows = np.flatnonzero(group == number)
            for begin in range(0, len(rows), CHUNK_UNITS):
                some = rows[begin : begin + CHUNK_UNITS]
                values = np.ascontiguousarray(features[some].T, dtype=np.float32)
                piece, total = np.empty_like(values), np.repeat(self.constant[number][:, None], len(some), axis=1)
                np.minimum(values, self.pieces.high[:, None], out=values)
                for at, low in enumerate(self.pieces.low):
                    np.maximum(values, low[:, None], out=piece)
                    total += coefficients[at * width : (at + 1) * width].T @ piece
                found[some] = total.T
        return found


def learn_hazards(fleet: Fleet, held_out: Fleet, seed: int) -> HazardModel:
    """Fit on one fleet, and calibrate on another one whose units are not in it. Raises ValueError without a failure in
    the first."""
    rng = np.random.default_rng(seed)
    if not fleet.cause.any():
        raise ValueError("fleet: nothing has failed")
    rows = _rows(fleet, rng)
    features = fleet.features[rows.unit, rows.hour]
    pieces = _pieces(features, rows.weight)
    basis = _Basis(pieces, *_spread(pieces.columns(features), rows.weight), features.shape[1], len(fleet.groups))
    columns = basis.columns(features, fleet.group[rows.unit])
    leaving = _leaving(fleet, rows, columns[:, : basis.width])
    answers = [_answers(fleet, rows, columns[:, : basis.width] @ leaving[:-1] + leaving[-1], at) for at in HORIZONS]
    fits = [_log_hazard(fleet, basis, resource, rng) for resource in range(len(fleet.resources))]
    fits += [_logit(columns, basis.penalty, answer) for answer in answers]
    common, group, constant = basis.raw(np.stack(fits, axis=1))
    model = HazardModel(
        names=fleet.names,
        resources=fleet.resources,
        groups=fleet.groups,
        pieces=pieces,
        common=common,
        group=group,
        constant=constant,
        calibrations=(),
    )
    return replace(model, calibrations=_calibrations(model, basis, leaving, held_out, rng))


class _Rows(NamedTuple):
    """Hours of units."""

    unit: NDArray[np.intp]
    hour: NDArray[np.intp]
    weight: Array
    """How many hours of the fleet each one stands for."""


def _rows(fleet: Fleet, rng: np.random.Generator) -> _Rows:
    """All hours before failures, and a share of the others: of many units few hours, rather than the reverse, because
    healthy units that look sick are rare."""
    before = fleet.last[:, None] - np.arange(fleet.features.shape[1])
    near = (fleet.cause > 0)[:, None] & (before < max(HORIZONS))
    chosen = fleet.observed & (near | (rng.random(near.shape) < QUIET_SHARE))
    unit, hour = np.nonzero(chosen)
    return _Rows(unit, hour, np.where(near[unit, hour], 1.0, 1 / QUIET_SHARE))


def _pieces(features: Columns, weight: Array) -> Pieces:
    """The features themselves, and a piece above each knot."""
    mean, spread = _spread(features, weight)
    low, high = [mean - REACH * spread], [mean + REACH * spread]
    near = np.quantile(features[weight == 1.0], NEAR_KNOTS, axis=0)
    for begins in (*_quantiles(features, weight, KNOTS), *near):
        beyond, spread = _spread(np.maximum(features - begins, 0), weight)
        low.append(begins)
        high.append(begins + beyond + REACH * spread)
    return Pieces(np.array(low, dtype=np.float32), np.max(high, axis=0).astype(np.float32))


def _quantiles(features: Columns, weight: Array, shares: Sequence[float]) -> list[Columns]:
    """Weighted quantiles of each feature."""
    order, place = np.argsort(features, axis=0), np.arange(features.shape[1])
    total = np.cumsum(weight[order], axis=0)
    rows = [(total < share * total[-1]).sum(axis=0).clip(max=len(features) - 1) for share in shares]
    return [features[order[row, place], place] for row in rows]


def _spread(columns: NDArray[np.floating], weight: Array) -> tuple[Array, Array]:
    """Means and standard deviations; one where a column is constant."""
    mean = np.average(columns, axis=0, weights=weight)
    spread = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weight))
    return mean, np.where(spread > 0, spread, 1.0)


class _Basis(NamedTuple):
    """Columns of a fit: standardised pieces, and the features once more for each group."""

    pieces: Pieces
    mean: Array
    spread: Array
    width: int
    """Features."""
    groups: int

    def columns(self, features: Columns, group: NDArray[np.intp]) -> Array:
        pieces = (self.pieces.columns(features) - self.mean) / self.spread
        own = pooled_columns(pieces[:, : self.width], group, self.groups)[:, self.width :]
        return np.concatenate([pieces, own], axis=1)

    @property
    def penalty(self) -> Array:
        """Half the weights of squared coefficients."""
        return np.repeat([RIDGE.common, RIDGE.group], [len(self.mean), self.width * self.groups])

    def raw(self, fits: Array) -> tuple[Columns, Columns, Columns]:
        """Coefficients of pieces as they are measured, those of groups, and constants.

        `fits` has the shape (columns of a fit + 1, outputs), with the constants last.
        """
        common = fits[: len(self.mean)] / self.spread[:, None]
        own = (
            fits[len(self.mean) : -1].reshape(self.groups, self.width, fits.shape[1]) / self.spread[: self.width, None]
        )
        own = np.concatenate([own, np.zeros((1, *own.shape[1:]))])
        constant = fits[-1] - self.mean @ common - np.einsum("f,gfo->go", self.mean[: self.width], own)
        return common.astype(np.float32), own.astype(np.float32), constant.astype(np.float32)


def _log_hazard(fleet: Fleet, basis: _Basis, resource: int, rng: np.random.Generator) -> Array:
    """Coefficients of one resource, and last the logarithm of its mean baseline hazard per hour."""
    failed = fleet.cause == resource + 1
    none = np.zeros((len(failed), 0))
    sets = sample_sets(Spells(np.zeros(len(failed)), (fleet.last + 1).astype(float), failed, none), CONTROLS, rng)
    if not len(sets.members):
        return np.append(np.zeros(len(basis.penalty)), _NOTHING)
    hours = np.broadcast_to(fleet.last[sets.members[:, :1]], sets.members.shape)
    features = fleet.features[sets.members, hours].reshape(sets.members.size, -1)
    columns = basis.columns(features, fleet.group[sets.members].reshape(-1))
    sets = sets._replace(members=np.arange(sets.members.size).reshape(sets.members.shape))
    beta = fit_sampled(columns, sets, basis.penalty).value
    total = cumulative_hazard(columns, sets, beta)
    return np.append(beta, np.log(total[-1] / (fleet.last.max() + 1)))


def _leaving(fleet: Fleet, rows: _Rows, columns: Array) -> Array:
    """Coefficients of the end of a run within an hour without a failure, and last the constant."""
    hours = fleet.features.shape[1]
    ends = (fleet.last[rows.unit] == rows.hour) & (fleet.cause[rows.unit] == 0) & (rows.hour < hours - 1)
    return _logit(columns, np.full(columns.shape[1], RIDGE.common), _Answers(ends.astype(float), rows.weight))


class _Answers(NamedTuple):
    """Whether something happened after each hour, and what the answer weighs: 0 where there is none."""

    happened: Array
    weight: Array


def _answers(fleet: Fleet, rows: _Rows, leaving: Array, horizon: int) -> _Answers:
    """Failures within a horizon. `leaving` is the logit of leaving within an hour, which is taken to stay as it is."""
    left = fleet.last[rows.unit] - rows.hour
    failed = (fleet.cause[rows.unit] > 0) & (left < horizon)
    known = failed | (left >= horizon)
    stands_for = np.exp(np.logaddexp(0, leaving) * np.minimum(left, horizon))
    return _Answers(failed.astype(float), np.where(known, rows.weight * np.minimum(stands_for, LARGEST_WEIGHT), 0.0))


def _logit(columns: Array, penalty: Array, answers: _Answers) -> Array:
    """Coefficients, and last the constant, which has no penalty."""
    known = answers.weight > 0
    with_one = np.concatenate([columns[known], np.ones((np.count_nonzero(known), 1))], axis=1)
    weight = answers.weight[known]
    return fit(with_one, answers.happened[known] * weight, np.append(penalty, 0.0), weight).value


def _calibrations(
    model: HazardModel, basis: _Basis, leaving: Array, held_out: Fleet, rng: np.random.Generator
) -> tuple[Calibration, ...]:
    """From units that were not fitted on."""
    rows = _rows(held_out, rng)
    features, group = held_out.features[rows.unit, rows.hour], held_out.group[rows.unit]
    logits = model.outputs(features, group)[:, len(model.resources) :]
    leaves = basis.columns(features, group)[:, : basis.width] @ leaving[:-1] + leaving[-1]
    failures = float((held_out.cause > 0).sum())
    answers = [_answers(held_out, rows, leaves, horizon) for horizon in HORIZONS]
    return tuple(
        calibrate(logits[one.weight > 0, at], one.happened[one.weight > 0], one.weight[one.weight > 0], failures)
        for at, one in enumerate(answers)
    )
