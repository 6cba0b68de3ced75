"""How well scores of a fleet say which units fail, and when."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evaluation.survival.simulated_fleet import FleetTruth
from pharoah_learning.hazard_fits import Fleet
from pharoah_learning.models.alarm_budget import alarms, budget_threshold
from pharoah_learning.models.mantel_haenszel import Array

HOLD_HOURS = 24
"""An alarm goes on until a day without a score above the threshold: one alarm is one false alarm, however long."""
PER_UNIT_HOURS = 24_000
"""A budget is a number of false alarms in a thousand unit-days."""


class Ranking(NamedTuple):
    """How well scores order hours of units. All are between 0 and 1, larger is better."""

    c_index: float
    """How often, of a unit that fails in an hour and one that does not, the first has the higher score (incident and
    dynamic concordance, Heagerty and Zheng 2005)."""
    auc_24h: float
    """How often, of an hour within a day before a failure and one that is not, the first has the higher score."""
    average_precision: float
    """The mean over hours before failures of the share of such hours among all with at least their score."""


def ranking(scores: Array, fleet: Fleet) -> Ranking:
    """`scores` has the shape (units, hours), NaN where a unit is not observed."""
    before = fleet.last[:, None] - np.arange(scores.shape[1])
    failing: np.ndarray = np.asarray((fleet.cause > 0)[:, None] & (before < 24) & (before >= 0))
    known = np.asarray(failing | (before >= 24))  # runs that ended earlier are no answer
    hours, failing = scores[known], failing[known]
    return Ranking(_concordance(scores, fleet), _auc(hours, failing), _precision(hours, failing))


class Alarms(NamedTuple):
    """What alarms of a budget give."""

    per_1000_unit_days: float
    """False alarms: those of units that did not fail."""
    recall: float
    """The share of failures after a degradation that had an alarm before."""
    recall_all: float
    lead_hours: float
    """From the first alarm to the failure, the median."""


def alarms_of(scores: Array, truth: FleetTruth, calibrated: Array, held_out: Fleet, budget: float) -> Alarms:
    """Alarms on a fleet, with the threshold that keeps a budget of false alarms in a thousand unit-days on another."""
    threshold = budget_threshold(calibrated[held_out.cause == 0], budget / PER_UNIT_HOURS, HOLD_HOURS)
    begins = alarms(scores, threshold, HOLD_HOURS)
    failed = truth.fleet.cause > 0
    quiet = ~np.isnan(scores[~failed])
    seen = np.asarray(begins.any(axis=1))
    lead = truth.fleet.last + 1 - begins.argmax(axis=1)
    degrading = truth.degrading
    return Alarms(
        float(begins[~failed].sum() / quiet.sum() * PER_UNIT_HOURS),
        float(np.mean(seen[degrading])),
        float(np.mean(seen[failed])),
        float(np.median(lead[degrading & seen])) if (degrading & seen).any() else 0.0,
    )


def recall_if_repeated(scores: Array, truth: FleetTruth, calibrated: Array, held_out: Fleet, budget: float) -> float:
    """The recall where an alarm that goes on counts as another one each day, which the same budget must pay for."""
    quiet = calibrated[held_out.cause == 0]
    allowed = budget / PER_UNIT_HOURS * np.count_nonzero(~np.isnan(quiet)) - 1
    low, high = float(np.nanmin(quiet)), float(np.nanmax(quiet))
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _days(quiet, middle) > allowed else (low, middle)
    return float(np.mean((np.nan_to_num(scores[truth.degrading], nan=-np.inf) > high).any(axis=1)))


def _days(scores: Array, threshold: float) -> int:
    """How many alarms there are that last a day each."""
    above = np.nan_to_num(scores, nan=-np.inf) > threshold
    count, until = 0, np.zeros(len(scores), dtype=int)
    for at in range(scores.shape[1]):
        begins = above[:, at] & (until <= at)
        until[begins] = at + HOLD_HOURS
        count += int(begins.sum())
    return count


def _concordance(scores: Array, fleet: Fleet) -> float:
    better = pairs = 0.0
    for unit in np.flatnonzero(fleet.cause > 0):
        hour = fleet.last[unit]
        outlive = np.flatnonzero((fleet.last > hour) | ((fleet.last == hour) & (fleet.cause == 0)))
        others = scores[outlive, hour]
        better += (others < scores[unit, hour]).sum() + (others == scores[unit, hour]).sum() / 2
        pairs += len(others)
    return better / pairs


def _auc(scores: Array, failing: np.ndarray) -> float:
    """Mann and Whitney's statistic; scores that are equal count in the order of the rows."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores, kind="stable")] = np.arange(len(scores))
    count = failing.sum()
    return float((ranks[failing].mean() - (count - 1) / 2) / (len(scores) - count))


def _precision(scores: Array, failing: np.ndarray) -> float:
    ordered = failing[np.argsort(-scores, kind="stable")]
    places = np.flatnonzero(ordered)
    return float((np.arange(1, len(places) + 1) / (places + 1)).mean())
