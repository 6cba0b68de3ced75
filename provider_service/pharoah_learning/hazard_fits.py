"""Fits hazard models to a fleet (`hazards`): proportional hazards with sampled controls, and logistic models.

More errors are never a good sign, so effects rise only (`hazard_basis`): from few failures, free coefficients learn
much that is not so. Archetype groups share coefficients as far as their failures do not show otherwise
(`models.pooling`).

Runs that end before a horizon without a failure are no answer for it. Those that stay stand for them, with weights that
are one over the probability to be still observed (Robins and Rotnitzky 1992): users cancel slow runs more often. That
probability is the product of those of all hours in between, with what was seen in each of them. Hours from which the
observation ends within the horizon are left out: of them, only those before failures would be an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.expected_counts import ExpectedCounts, learn_expected_counts
from pharoah_learning.hazard_basis import RIDGE, HazardBasis
from pharoah_learning.hazards import HORIZONS, Columns, HazardModel
from pharoah_learning.models.calibration import Calibration, calibrate
from pharoah_learning.models.cox import Spells, cumulative_hazard, fit_sampled, sample_sets
from pharoah_learning.models.logistic import fit
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_protocol.vocabulary import WorseDirection

CONTROLS = 200
"""Controls of each failure: with 200 the coefficients are within 0.3 standard errors of the full likelihood
(`python -m evaluation survival --part titan`)."""
MAX_QUIET_HOURS = 400_000
"""Hours without a failure within the longest horizon that logistic models are fitted on, with weights where there are
more. Healthy units that look sick are rare, so each of them counts; so many hours take 0.6 GB with 34 features."""
MAX_WEIGHT = 20.0
"""The largest weight of an hour that stands for hours of cancelled runs."""
_NOTHING = -30.0
"""The logarithm of the hazard, and of the odds, of a resource of which nothing has failed."""


class TooLittleSeen(ValueError):
    """A fleet of which too little is known to fit or to calibrate a model."""


class Outcomes(NamedTuple):
    """What came of hours of units, each with the shape (hours,)."""

    failed: NDArray[np.bool_]
    known: NDArray[np.bool_]
    """Whether it is known that the unit failed, or that it did not."""


class Fleet(NamedTuple):
    """Units that were observed hour by hour from the same hour of their life on."""

    names: tuple[str, ...]
    """Names of the features."""
    worse: tuple[WorseDirection | None, ...]
    """In which direction of each feature no unit is better off; None where both may be."""
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
    observable: NDArray[np.intp] | None = None
    """For how many hours each unit would have been observed, had it gone on; None for all hours that there are."""

    @property
    def observable_hours(self) -> NDArray[np.intp]:
        """The same of each unit, shape (units,)."""
        return np.full(len(self.last), self.features.shape[1]) if self.observable is None else self.observable

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Shape (units, hours)."""
        return np.arange(self.features.shape[1]) <= self.last[:, None]

    def within(self, unit: NDArray[np.intp], hour: NDArray[np.intp], horizon: int) -> Outcomes:
        """What came of units within so many hours after an hour. Where the observation ends within them, only failures
        would be known, so neither is."""
        left = self.last[unit] - hour
        failed = (self.cause[unit] > 0) & (left < horizon)
        return Outcomes(failed, (failed | (left >= horizon)) & (hour + horizon < self.observable_hours[unit]))

    def place(self, values: Array) -> Array:
        """Values of the observed hours, unit by unit, in their places: shape (units, hours), NaN elsewhere."""
        found = np.full(self.observed.shape, np.nan)
        found[self.observed] = values
        return found

    def relative_to(self, expected: ExpectedCounts) -> Fleet:
        """The fleet with its counts relative to what is expected of each unit."""
        return self._replace(features=expected.relative(self.features))


def learn_hazards(fleet: Fleet, held_out: Fleet, seed: int, most_quiet_hours: int = MAX_QUIET_HOURS) -> HazardModel:
    """Fit on one fleet, and calibrate on another one whose units are not in it. Logistic models are fitted on at most
    so many hours without a failure within the longest horizon. Raises TooLittleSeen without a failure in the first, and
    where for some horizon one of them has no failure, or no hour without one, that is known; LinAlgError for a fit that
    did not converge."""
    rng = np.random.default_rng(seed)
    if not fleet.cause.any():
        raise TooLittleSeen("nothing has failed")
    expected = learn_expected_counts(fleet.names, fleet.features, fleet.observed)
    fleet, held_out = (one.relative_to(expected) for one in (fleet, held_out))
    rows = _rows(fleet, most_quiet_hours, rng)
    features = fleet.features[rows.unit, rows.hour]
    basis = HazardBasis.from_features(features, rows.weight, rows.near, fleet.worse, len(fleet.groups))
    leaving = _leaving(fleet, rows, basis.linear(features))
    stands_for = _stands_for(fleet, basis, leaving)
    columns = _with_one(basis.columns(features, fleet.group[rows.unit]))
    fits = [_log_hazard(fleet, basis, resource, rng) for resource in range(len(fleet.resources))]
    for horizon in HORIZONS[1:]:
        fits += _logits(fleet, rows, basis, columns, _answers(fleet, rows, stands_for, horizon))
    common, group, constant = basis.raw(np.stack(fits, axis=1))
    model = HazardModel(
        names=fleet.names,
        resources=fleet.resources,
        groups=fleet.groups,
        pieces=basis.pieces,
        common=common,
        group=group,
        constant=constant,
        calibrations=(),
    )
    return replace(model, calibrations=_calibrations(model, basis, leaving, held_out, rng), expected=expected)


class _Rows(NamedTuple):
    """Hours of units."""

    unit: NDArray[np.intp]
    hour: NDArray[np.intp]
    weight: Array
    """How many hours of the fleet each one stands for."""
    near: NDArray[np.bool_]
    """Whether the unit fails within the longest horizon."""


def _rows(fleet: Fleet, most_quiet_hours: int, rng: np.random.Generator) -> _Rows:
    """All hours before failures, and a share of the others: of many units few hours, rather than the reverse, because
    healthy units that look sick are rare."""
    before = fleet.last[:, None] - np.arange(fleet.features.shape[1])
    near = (fleet.cause > 0)[:, None] & (before < max(HORIZONS))
    quiet = int((fleet.observed & ~near).sum())
    share = min(1.0, most_quiet_hours / max(1, quiet))
    chosen = fleet.observed & (near | (rng.random(near.shape) < share))
    unit, hour = np.nonzero(chosen)
    return _Rows(unit, hour, np.where(near[unit, hour], 1.0, 1 / share), near[unit, hour])


def _log_hazard(fleet: Fleet, basis: HazardBasis, resource: int, rng: np.random.Generator) -> Array:
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
    beta = fit_sampled(columns, sets, basis.penalty, basis.at_least_zero).value
    total = cumulative_hazard(columns, sets, beta)
    return np.append(beta, np.log(total[-1] / (fleet.last.max() + 1)))


def _leaving(fleet: Fleet, rows: _Rows, linear: Columns) -> Array:
    """Coefficients of the end of a run within an hour without a failure, and last the constant."""
    over = rows.hour >= fleet.observable_hours[rows.unit] - 1
    ends = (fleet.last[rows.unit] == rows.hour) & (fleet.cause[rows.unit] == 0) & ~over
    penalty = np.append(np.full(linear.shape[1], RIDGE.common), 0.0)
    return fit(_with_one(linear), ends * rows.weight, penalty, rows.weight).value


def _stands_for(fleet: Fleet, basis: HazardBasis, leaving: Array) -> Array:
    """Minus the logarithm of the probability not to leave before each hour, shape (units, hours + 1): column h is the
    sum over the hours 0 to h - 1. It means something up to the last hour of each unit. A failure is no leaving."""
    found = np.zeros((len(fleet.last), fleet.features.shape[1] + 1))
    for hour in range(fleet.features.shape[1]):
        logit = basis.linear(fleet.features[:, hour]) @ leaving[:-1] + leaving[-1]
        found[:, hour + 1] = found[:, hour] + np.logaddexp(0, logit)
    return found


def _with_one(columns: Columns) -> Columns:
    return np.concatenate([columns, np.ones((len(columns), 1), dtype=np.float32)], axis=1)


class _Answers(NamedTuple):
    """Whether something happened after each hour, and what the answer weighs: 0 where there is none."""

    happened: Array
    weight: Array


def _answers(fleet: Fleet, rows: _Rows, stands_for: Array, horizon: int) -> _Answers:
    """Failures within a horizon. `stands_for`: what `_stands_for` gives of the fleet. Raises TooLittleSeen where both
    answers do not occur."""
    failed, known = fleet.within(rows.unit, rows.hour, horizon)
    until = np.minimum(fleet.last[rows.unit], rows.hour + horizon)
    weight = np.exp(stands_for[rows.unit, until] - stands_for[rows.unit, rows.hour]).clip(max=MAX_WEIGHT)
    for answers, what in ((known & failed, "no failure"), (known & ~failed, "no hour without one")):
        if not answers.any():
            raise TooLittleSeen(f"{what} is known within {horizon} hours after what was observed")
    return _Answers(failed.astype(float), np.where(known, rows.weight * weight, 0.0))


def _logits(fleet: Fleet, rows: _Rows, basis: HazardBasis, columns: Columns, answers: _Answers) -> Iterator[Array]:
    """For each resource the coefficients, and last the constant, which has neither a penalty nor a bound."""
    known = answers.weight > 0
    columns, weight, cause = columns[known], answers.weight[known], fleet.cause[rows.unit[known]]
    penalty, at_least_zero = np.append(basis.penalty, 0.0), np.append(basis.at_least_zero, False)
    for resource in range(len(fleet.resources)):
        failures = answers.happened[known] * weight * (cause == resource + 1)
        if failures.any():
            yield fit(columns, failures, penalty, weight, at_least_zero).value
        else:
            yield np.append(np.zeros(columns.shape[1] - 1), _NOTHING)


def _calibrations(
    model: HazardModel, basis: HazardBasis, leaving: Array, held_out: Fleet, rng: np.random.Generator
) -> tuple[Calibration, ...]:
    """From units that were not fitted on."""
    rows = _rows(held_out, MAX_QUIET_HOURS, rng)
    features, group = held_out.features[rows.unit, rows.hour], held_out.group[rows.unit]
    logits = model.outputs(features, group).logit.astype(float)
    stands_for = _stands_for(held_out, basis, leaving)
    failures = float((held_out.cause > 0).sum())
    answers = [_answers(held_out, rows, stands_for, horizon) for horizon in HORIZONS]
    return tuple(
        calibrate(logits[one.weight > 0, at], one.happened[one.weight > 0], one.weight[one.weight > 0], failures)
        for at, one in enumerate(answers)
    )
