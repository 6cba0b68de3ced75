"""How a hazard model of nodes does on nodes that it was not fitted on, for operators: nodes without a failure after a
forecast (Kaplan and Meier 1958), hazard ratios of signals, calibration, and how long before failures alarms came.

The nodes that a model is not fitted on set its calibration and its alarms. So they are halved for the check, and each
half is forecast with what the other half sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from pharoah_learning.hazard_fits import Fleet
from pharoah_learning.hazards import HORIZONS, HazardModel
from pharoah_learning.models.alarm_budget import alarms
from pharoah_learning.models.cox import SampledSets, Spells, fit_sampled, sample_sets
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_protocol.typed_json import FieldError, read_object, to_json
from pharoah_system.bounded_reading import parse_json

DAY_HOURS = HORIZONS[-1]
"""A node is forecast once in so many hours, and looked at for as long: the horizon of the model."""
FORECAST_HOURS = 72
"""An alarm forecasts a failure that comes within so many hours; any other one is false. Forecasts are about the next
day, but a degradation is often seen for a day or two before it. Of a node that fails after weeks, an alarm would always
be found that came before."""
CONTROLS = 200
"""For each failure; `pharoah_learning.hazard_fits` has the reason."""
MIN_FAILURES = 3
"""Failures with trouble before them that a hazard ratio of a signal needs."""
TENTH = 0.1
"""Hazard ratios are those of trouble for a tenth of the last six hours: hardly a node has trouble all the time."""
SPREAD = 1.0
"""Standard deviation that the logarithm of a hazard ratio has before anything was seen; it keeps a ratio finite."""
Z = 1.96
"""Two-sided 95 % of a normal distribution."""
MAX_BINS = 8
LEVEL = ".level"
"""The feature of a signal that is the share of the last six hours with trouble."""


class ForecastGroup(StrEnum):
    """What a node was forecast."""

    ALARM = "alarm"
    """Its risk was above that of an alarm."""
    NO_ALARM = "no alarm"


@dataclass(frozen=True, kw_only=True)
class SurvivalCurve:
    """Nodes without a failure after a forecast, by the hours since then, with intervals of 95 %."""

    group: ForecastGroup
    forecasts: int
    share: tuple[float, ...]
    """After 0 hours, 1 hour and so on, up to a day."""
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class SignalHazard:
    """The hazard of a node with trouble for a tenth of the last six hours, over that of one without."""

    signal: str
    ratio: float
    low: float
    high: float
    failures: int
    """Failures with some trouble before them."""


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """Forecasts with similar probabilities of a failure within a day."""

    expected: float
    """Their mean probability."""
    forecasts: int
    failed: int
    """How many nodes failed within the day."""


@dataclass(frozen=True, kw_only=True)
class HazardCheck:
    """All that is shown of a model."""

    curves: tuple[SurvivalCurve, ...]
    hazards: tuple[SignalHazard, ...]
    """The largest lower bound first; of all nodes, also those that the model was fitted on."""
    bins: tuple[CalibrationBin, ...]
    """The lowest probability first."""
    lead_hours: tuple[int, ...]
    """From the first alarm within FORECAST_HOURS to the failure, of each failure that had one."""
    failures: int
    """Failures of the nodes that were held out."""
    false_alarms: int
    healthy_days: float
    """Days of nodes that did not fail within FORECAST_HOURS, in which there were those false alarms."""
    is_cross_fitted: bool = False
    """Whether calibration and alarms were set on other nodes than those that are shown. Where too few are held out they
    are set on the same ones, and what is shown is too good; so it was in earlier releases."""

    def encode(self) -> str:
        """JSON."""
        return to_json(self)

    @classmethod
    def decode(cls, content: str) -> HazardCheck | None:
        """None for what another release has written."""
        try:
            return read_object(cls, parse_json(content, "hazard_check"), "hazard_check")
        except (FieldError, ValueError):
            return None


class Trial(NamedTuple):
    """A model and the nodes that it is tried on."""

    model: HazardModel
    alarm_risk: float
    """A risk above it is an alarm; infinite for none."""
    fleet: Fleet


class AlarmCounts(NamedTuple):
    """Alarms that forecast a failure, and those that do not."""

    lead_hours: tuple[int, ...]
    """From the first alarm within FORECAST_HOURS to the failure, of each failure that had one."""
    failures: int
    false_alarms: int
    """Alarms that began earlier, or of nodes that did not fail. An early one that goes on until a failure counts."""
    healthy_hours: int
    """Hours of nodes that did not fail within FORECAST_HOURS."""


def check_hazards(trials: Sequence[Trial], everyone: Fleet, seed: int, *, is_cross_fitted: bool) -> HazardCheck:
    """Try models on nodes that they were not fitted on; all trials together are shown as one."""
    scored = [_score(trial) for trial in trials]
    forecasts = _Forecasts(*(np.concatenate(parts) for parts in zip(*(one.forecasts for one in scored), strict=True)))
    counts = [one.counts for one in scored]
    return HazardCheck(
        curves=tuple(_curves(forecasts)),
        hazards=tuple(_hazards(everyone, np.random.default_rng(seed))),
        bins=tuple(_bins(forecasts)),
        lead_hours=tuple(hours for one in counts for hours in one.lead_hours),
        failures=sum(one.failures for one in counts),
        false_alarms=sum(one.false_alarms for one in counts),
        healthy_days=sum(one.healthy_hours for one in counts) / 24,
        is_cross_fitted=is_cross_fitted,
    )


def alarm_counts(fleet: Fleet, risks: Array, alarm_risk: float) -> AlarmCounts:
    """What the alarms of a fleet were worth. `risks`: shape (units, hours), NaN where a unit was not observed."""
    alarming, begun = np.nan_to_num(risks, nan=-np.inf) > alarm_risk, alarms(risks, alarm_risk, DAY_HOURS)
    left = fleet.last[:, None] + 1 - np.arange(risks.shape[1])
    fails = (fleet.cause > 0)[:, None] & (left <= FORECAST_HOURS)
    forecast = alarming & fails
    units = np.flatnonzero(forecast.any(axis=1))
    return AlarmCounts(
        lead_hours=tuple(left[units, forecast[units].argmax(axis=1)].tolist()),
        failures=int((fleet.cause > 0).sum()),
        false_alarms=int((begun & ~fails).sum()),
        healthy_hours=int((fleet.observed & ~fails).sum()),
    )


class _Forecasts(NamedTuple):
    """Forecasts of nodes once a day, and what came of them: days of one node do not overlap. Each has the shape
    (forecasts,)."""

    alarmed: np.ndarray
    probability: Array
    failed: np.ndarray
    known: np.ndarray
    hours: np.ndarray
    """For how long the node was looked at."""


class _Scored(NamedTuple):
    """What came of one trial."""

    counts: AlarmCounts
    forecasts: _Forecasts


def _score(trial: Trial) -> _Scored:
    fleet = trial.fleet
    unit, hour = np.nonzero(fleet.observed)
    scores = trial.model.score(fleet.features[unit, hour], np.full(len(unit), -1))
    counts = alarm_counts(fleet, fleet.place(scores.risk), trial.alarm_risk)
    at = np.flatnonzero(hour % DAY_HOURS == 0)
    failed, known = fleet.within(unit[at], hour[at], DAY_HOURS)
    hours = np.minimum(fleet.last[unit[at]] - hour[at] + 1, DAY_HOURS)
    alarmed = scores.risk[at] > trial.alarm_risk
    return _Scored(counts, _Forecasts(alarmed, scores.probability[at, -1], failed, known, hours))


def _curves(forecasts: _Forecasts) -> list[SurvivalCurve]:
    from lifelines import KaplanMeierFitter  # imports pandas, half a second

    found = []
    for group, chosen in ((ForecastGroup.ALARM, forecasts.alarmed), (ForecastGroup.NO_ALARM, ~forecasts.alarmed)):
        if not chosen.any():
            continue
        fitter = KaplanMeierFitter()
        fitter.fit(forecasts.hours[chosen], forecasts.failed[chosen], timeline=np.arange(DAY_HOURS + 1))
        interval = fitter.confidence_interval_survival_function_.to_numpy()
        curves = (fitter.survival_function_.to_numpy()[:, 0], interval[:, 0], interval[:, 1])
        share, low, high = (tuple(round(float(one), 6) for one in np.nan_to_num(curve, nan=1.0)) for curve in curves)
        found.append(SurvivalCurve(group=group, forecasts=int(chosen.sum()), share=share, low=low, high=high))
    return found


def _hazards(fleet: Fleet, rng: np.random.Generator) -> list[SignalHazard]:
    """One proportional hazards model for each signal alone, with sampled controls."""
    failed, none = fleet.cause > 0, np.zeros((len(fleet.last), 0))
    sets = sample_sets(Spells(np.zeros(len(failed)), (fleet.last + 1).astype(float), failed, none), CONTROLS, rng)
    if not len(sets.members):
        return []
    hours = np.broadcast_to(fleet.last[sets.members[:, :1]], sets.members.shape)
    found = [
        one
        for at, name in enumerate(fleet.names)
        if name.endswith(LEVEL)
        and (one := _hazard(name.removesuffix(LEVEL), fleet.features[sets.members, hours, at], sets)) is not None
    ]
    return sorted(found, key=lambda one: (-one.low, one.signal))


def _hazard(signal: str, values: np.ndarray, sets: SampledSets) -> SignalHazard | None:
    """`values`: the share of time with trouble, of the members of all sets. None with too few failures."""
    failures = int(np.count_nonzero(values[:, 0] > 0))
    if failures < MIN_FAILURES:
        return None
    rows = sets._replace(members=np.arange(values.size).reshape(values.shape))
    fitted = fit_sampled(values.reshape(-1, 1) / TENTH, rows, np.array([0.5 / SPREAD**2]))
    value, error = float(fitted.value[0]), float(fitted.covariance[0, 0]) ** 0.5
    ratio, low, high = (round(float(np.exp(value + z * error)), 6) for z in (0.0, -Z, Z))
    return SignalHazard(signal=signal, ratio=ratio, low=low, high=high, failures=failures)


def _bins(forecasts: _Forecasts) -> list[CalibrationBin]:
    """Bins of about equal numbers of expected failures: nearly all nodes are healthy, and say the same."""
    probability, failed = forecasts.probability[forecasts.known], forecasts.failed[forecasts.known]
    order = np.argsort(probability, kind="stable")
    share = np.cumsum(probability[order]) / max(float(probability.sum()), 1e-12)
    number = np.minimum((share * MAX_BINS).astype(int), MAX_BINS - 1)
    return [
        CalibrationBin(
            expected=round(float(probability[rows].mean()), 6), forecasts=len(rows), failed=int(failed[rows].sum())
        )
        for one in np.unique(number)
        if len(rows := order[number == one])
    ]
