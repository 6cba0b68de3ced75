"""How a hazard model does on held-out nodes: planted effects, lifelines as the oracle, and the picture."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter

from evaluation.survival.simulated_nodes import SimulatedNodes, simulate_nodes
from pharoah_learning.hazard_check import (
    DAY_HOURS,
    FORECAST_HOURS,
    TENTH,
    ForecastGroup,
    HazardCheck,
    Trial,
    alarm_counts,
    check_hazards,
)
from pharoah_learning.hazard_fits import Fleet, learn_hazards
from pharoah_learning.hazards import HazardModel
from pharoah_learning.models.alarm_budget import alarms
from pharoah_learning.node_hazards import HALVES, HELD_OUT, LearnedNodeHazards, learn_node_hazards
from pharoah_learning.node_lives import node_hours, node_lives
from pharoah_protocol.vocabulary import WorseDirection
from pharoah_provider.pictures.node_hazards import draw_node_hazards, figure_of

SIGNALS = ("gpu_thermal_slowdown", "gpu_uncorrected_errors", "memory_stalled", "network_link_down")


@pytest.fixture(scope="module")
def published() -> LearnedNodeHazards:
    history = simulate_nodes(SimulatedNodes(nodes=200, hours=336), np.random.default_rng(5))
    hours = node_hours(history.observed, history.trouble, SIGNALS)
    return learn_node_hazards(hours, history.failures, history.ended_at)


@pytest.fixture(scope="module")
def learned(published: LearnedNodeHazards) -> HazardCheck:
    assert published.check is not None, published.note
    return published.check


def fleet_of(rng: np.random.Generator, units: int, hours: int, hazard: float, ratio: float) -> Fleet:
    """Units half of which have trouble all the time, and fail so much sooner."""
    troubled = rng.random(units) < 0.5
    ends = rng.exponential(1 / np.where(troubled, hazard * ratio, hazard))
    last = np.minimum(ends.astype(int), hours - 1)
    features = np.broadcast_to(troubled[:, None, None], (units, hours, 1)).astype(np.float32)
    cause = (ends < hours).astype(int)
    worse = (WorseDirection.HIGHER,)
    return Fleet(("hot.level",), worse, ("compute",), (), features, last, cause, np.full(units, -1))


def checked(model: HazardModel, alarm_risk: float, fleet: Fleet) -> HazardCheck:
    return check_hazards([Trial(model, alarm_risk, fleet)], fleet, 0, is_cross_fitted=False)


def test_the_hazard_ratio_of_a_signal_is_that_of_lifelines() -> None:
    fleet = fleet_of(np.random.default_rng(1), 400, 200, 0.004, 3.0)
    model = learn_hazards(fleet, fleet, 0)
    (found,) = checked(model, inf, fleet).hazards
    table = pd.DataFrame({"hot": fleet.features[:, 0, 0], "hours": fleet.last + 1.0, "failed": fleet.cause})
    oracle = CoxPHFitter().fit(table, "hours", "failed").summary.loc["hot"]
    error = float(oracle["se(coef)"])
    assert np.log(found.ratio) / TENTH == pytest.approx(float(oracle["coef"]), abs=0.3 * error)
    assert np.log(found.high / found.low) / TENTH == pytest.approx(2 * 1.96 * error, rel=0.15)
    assert found.low < 3.0**TENTH < found.high
    assert found.failures == int((fleet.cause[fleet.features[:, 0, 0] > 0] > 0).sum())


def test_curves_hold_each_day_after_a_forecast_by_whether_it_was_an_alarm() -> None:
    fleet = fleet_of(np.random.default_rng(2), 300, 96, 0.01, 5.0)
    model = learn_hazards(fleet, fleet, 0)
    risk = model.score(np.array([[0.0], [1.0]], dtype=np.float32), np.array([-1, -1])).risk
    check = checked(model, float(risk.mean()), fleet)
    alarm, calm = check.curves
    assert (alarm.group, calm.group) == (ForecastGroup.ALARM, ForecastGroup.NO_ALARM)
    hours, failed = [], []
    for unit in np.flatnonzero(fleet.features[:, 0, 0]):
        for at in range(0, fleet.last[unit] + 1, DAY_HOURS):
            left = fleet.last[unit] + 1 - at
            hours.append(min(left, DAY_HOURS))
            failed.append(fleet.cause[unit] > 0 and left <= DAY_HOURS)
    oracle = KaplanMeierFitter().fit(hours, failed, timeline=np.arange(DAY_HOURS + 1))
    assert alarm.forecasts == len(hours)
    assert alarm.share == pytest.approx(oracle.survival_function_.iloc[:, 0].to_numpy(), abs=1e-5)
    assert alarm.share[DAY_HOURS] == pytest.approx(np.exp(-0.05 * DAY_HOURS), abs=0.06)
    assert calm.share[DAY_HOURS] == pytest.approx(np.exp(-0.01 * DAY_HOURS), abs=0.06)
    assert all(low <= share <= high for low, share, high in zip(alarm.low, alarm.share, alarm.high, strict=True))


def test_an_alarm_is_early_by_the_hours_until_the_failure(learned: HazardCheck) -> None:
    fleet = fleet_of(np.random.default_rng(3), 100, 72, 0.01, 5.0)
    model = learn_hazards(fleet, fleet, 0)
    check = checked(model, -inf, fleet)
    failed = fleet.cause > 0
    assert sorted(check.lead_hours) == sorted((fleet.last[failed] + 1).tolist()), "every node alarms in its first hour"
    assert check.failures == int(failed.sum())
    always = np.where(fleet.observed[~failed], 1.0, np.nan)
    assert check.false_alarms == alarms(always, 0.0, DAY_HOURS).sum() > 0, "those of nodes that did not fail"
    assert checked(model, inf, fleet).lead_hours == ()
    assert len(learned.lead_hours) <= learned.failures


def test_an_alarm_long_before_a_failure_is_a_false_one() -> None:
    """Two nodes: one alarms 100 and 30 hours before it fails, the other one never fails and alarms once."""
    risks = np.full((2, 200), 0.0)
    risks[0, [100, 170]] = risks[1, 50] = 1.0
    risks[1, 150:] = np.nan
    fleet = fleet_of(np.random.default_rng(5), 2, 200, 0.01, 1.0)
    fleet = fleet._replace(last=np.array([199, 149]), cause=np.array([1, 0]))
    found = alarm_counts(fleet, risks, 0.5)
    assert (found.lead_hours, found.failures, found.false_alarms) == ((30,), 1, 2)
    assert found.healthy_hours == 200 - FORECAST_HOURS + 150
    risks[0, 200 - FORECAST_HOURS] = 1.0
    assert alarm_counts(fleet, risks, 0.5).lead_hours == (FORECAST_HOURS,)
    risks[0, 200 - FORECAST_HOURS - 1] = 1.0
    assert alarm_counts(fleet, risks, 0.5).false_alarms == 3, "it began an hour too early"
    assert alarm_counts(fleet, risks, 0.5).lead_hours == (FORECAST_HOURS,), "and it goes on"


def test_trials_are_shown_together() -> None:
    """Two halves, the second one with a model that never alarms."""
    first, second = (fleet_of(np.random.default_rng(seed), 200, 96, 0.01, 5.0) for seed in (6, 7))
    model = learn_hazards(first, second, 0)
    loud, silent = Trial(model, -inf, first), Trial(model, inf, second)
    both = check_hazards([loud, silent], first, 0, is_cross_fitted=True)
    alone = [check_hazards([trial], first, 0, is_cross_fitted=True) for trial in (loud, silent)]
    assert [one.forecasts for one in both.curves] == [alone[0].curves[0].forecasts, alone[1].curves[0].forecasts]
    assert both.lead_hours == alone[0].lead_hours and not alone[1].lead_hours
    assert both.failures == sum(one.failures for one in alone)
    assert both.healthy_days == pytest.approx(sum(one.healthy_days for one in alone))
    assert sum(one.failed for one in both.bins) == sum(bin.failed for one in alone for bin in one.bins)


def test_held_out_nodes_are_forecast_with_what_other_held_out_nodes_set() -> None:
    """The same check by hand: halves of the nodes that were not fitted on, each with the calibration of the other."""
    history = simulate_nodes(SimulatedNodes(nodes=150, hours=192), np.random.default_rng(5))
    hours = node_hours(history.observed, history.trouble, SIGNALS)
    found = learn_node_hazards(hours, history.failures, history.ended_at)
    assert found.model is not None and found.check is not None and found.check.is_cross_fitted, found.note
    lives = node_lives(hours, history.failures).with_features(list(map(hours.names.index, found.model.features)))
    is_held = lives.share_of_nodes(HELD_OUT, 0)
    fitted_on, held = lives.select(~is_held).fleet, lives.select(is_held)
    is_first = held.share_of_nodes(HALVES, 0)
    first, second = held.select(is_first), held.select(~is_first)
    assert not set(first.nodes) & set(second.nodes) and first.failed and second.failed

    def expected(calibrated_on: Fleet, shown: Fleet) -> float:
        check = checked(learn_hazards(fitted_on, calibrated_on, 0), inf, shown)
        return sum(one.expected * one.forecasts for one in check.bins)

    shown = sum(one.expected * one.forecasts for one in found.check.bins)
    by_others = expected(first.fleet, second.fleet) + expected(second.fleet, first.fleet)
    assert shown == pytest.approx(by_others, abs=2e-3), "bins have six digits"
    assert abs(expected(held.fleet, held.fleet) - by_others) > 2e-2, "the calibration of the nodes themselves differs"


def test_with_too_few_held_out_nodes_the_check_is_of_those_that_set_it(published: LearnedNodeHazards) -> None:
    assert published.check is not None and not published.check.is_cross_fitted
    assert published.note.endswith("; too few were held out to check calibration and alarms on other nodes")


def test_calibration_bins_are_about_all_forecasts_whose_outcome_is_known() -> None:
    fleet = fleet_of(np.random.default_rng(4), 300, 96, 0.01, 5.0)
    check = checked(learn_hazards(fleet, fleet, 0), inf, fleet)
    assert [one.expected for one in check.bins] == sorted(one.expected for one in check.bins)
    assert sum(one.failed for one in check.bins) == int((fleet.cause[fleet.last < 96 - DAY_HOURS] > 0).sum())
    expected = sum(one.expected * one.forecasts for one in check.bins)
    assert sum(one.failed for one in check.bins) == pytest.approx(expected, rel=0.1)
    assert check.bins[0].expected < 0.4 < 0.5 < check.bins[-1].expected


def test_it_survives_its_json_and_what_others_wrote_is_none(learned: HazardCheck) -> None:
    assert HazardCheck.decode(learned.encode()) == learned
    for content in ("", "[]", "{}", "null", learned.encode().replace("lead_hours", "lead")):
        assert HazardCheck.decode(content) is None


def test_planted_trouble_is_seen_and_drawn(learned: HazardCheck, tmp_path: Path) -> None:
    alarm, calm = learned.curves
    assert alarm.share[-1] < calm.share[-1] and alarm.high[-1] < calm.low[-1]
    assert learned.hazards and all(one.low > 1 for one in learned.hazards[:2])
    figure = figure_of(learned)
    survival, hazards, calibration, leads = figure.axes
    assert len(hazards.get_yticklabels()) == len(learned.hazards)
    assert f"{alarm.forecasts:,} forecasts" in survival.get_legend().get_texts()[0].get_text()
    assert f"share of {learned.failures} failures" in leads.get_ylabel()
    assert calibration.get_xscale() == "log"
    draw_node_hazards(tmp_path / "a.png", learned)
    assert (tmp_path / "a.png").stat().st_size > 10_000
    figure_of(replace(learned, curves=(), hazards=(), bins=(), lead_hours=()))
