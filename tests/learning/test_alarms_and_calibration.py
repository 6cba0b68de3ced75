"""Thresholds keep what they promise, and scores become probabilities."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.models.alarm_budget import alarms, budget_threshold, conformal_threshold
from pharoah_learning.models.calibration import MIN_FAILURES, calibrate


def test_a_conformal_threshold_is_exceeded_as_often_as_promised() -> None:
    """The exact probability is 1 - ceil((n + 1)(1 - share)) / (n + 1), averaged over draws (Vovk and others 2005)."""
    rng = np.random.default_rng(1)
    exceeded = [rng.normal() > conformal_threshold(rng.normal(size=99), 0.05) for _ in range(20_000)]
    assert np.mean(exceeded) == pytest.approx(0.05, abs=0.005)


def test_few_runs_promise_nothing() -> None:
    assert conformal_threshold(np.zeros(18), 0.05) == inf
    assert conformal_threshold(np.arange(19.0), 0.05) == 18.0
    with pytest.raises(ValueError, match="share: expected a number between 0 and 1"):
        conformal_threshold(np.zeros(3), 0.0)


def test_an_alarm_is_not_repeated_while_it_goes_on() -> None:
    scores = np.array([[0, 2, 2, 2, 2, 0, 2, 0, 0, 2], [nan, nan, 3, 0, 0, 0, nan, nan, nan, nan]], dtype=float)
    assert alarms(scores, 1.0, hold=3).nonzero()[1].tolist() == [1, 9, 2]


@given(st.integers(0, 1000), st.floats(0.001, 0.5), st.integers(1, 6))
def test_a_budget_is_kept_on_the_runs_it_was_set_on(seed: int, per_time: float, hold: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(12, 20))
    threshold = budget_threshold(scores, per_time, hold)
    count = alarms(scores, threshold, hold).sum()
    assert count + 1 <= per_time * scores.size or (threshold == inf and count == 0)


def test_a_threshold_below_all_scores_keeps_no_budget_by_alarms_that_never_end() -> None:
    """With 12 units, alarms that never end would be 12."""
    scores = np.random.default_rng(1).normal(size=(12, 500))
    threshold = budget_threshold(scores, 14 / scores.size, hold=2)
    assert (scores > threshold).mean() < 0.01


def drawn(count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Scores that are logits too far from 0, so that they are not calibrated, and failures."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(-2, 2, count)
    return scores, (rng.random(count) < 1 / (1 + np.exp(-0.5 * scores))).astype(float)


@pytest.mark.parametrize("failures", [MIN_FAILURES, MIN_FAILURES - 1])
def test_scores_that_fall_with_failures_get_the_share_of_all(failures: float) -> None:
    """A curve that may not fall is flat then, and as high as there were failures."""
    scores, failed = drawn(5000)
    curve = calibrate(-scores, failed, np.ones(len(scores)), failures)
    assert curve(np.array([-5.0, 0.0, 5.0])) == pytest.approx(np.full(3, failed.mean()), rel=0.02)


@pytest.mark.parametrize("failures", [MIN_FAILURES, MIN_FAILURES - 1])
def test_probabilities_rise_and_are_right_on_the_average(failures: float) -> None:
    scores, failed = drawn(20_000)
    curve = calibrate(scores, failed, np.ones(len(scores)), failures)
    places = np.linspace(-6, 4, 50)
    values = curve(places)
    assert (np.diff(values) >= 0).all() and (values >= 0).all() and (values <= 1).all()
    assert np.abs(values - 1 / (1 + np.exp(-0.5 * places)))[5:-5].max() < 0.08
    others, fresh = drawn(20_000, seed=2)
    assert fresh.sum() / curve(others).sum() == pytest.approx(1, abs=0.05)


def test_as_many_failures_are_promised_as_there_are_though_they_are_rare() -> None:
    """In all, and among scores that are high or middling; over several draws, each with some hundred failures."""
    ranges, promised, true = np.array([[-20.0, 20.0], [-3.0, 20.0], [-7.0, -3.0]]), np.zeros(3), np.zeros(3)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores = np.concatenate([rng.normal(-9, 1, 50_000), rng.normal(-4, 2, 1_500)])
        probability = 1 / (1 + np.exp(-scores))
        failed = (rng.random(len(scores)) < probability).astype(float)
        values = calibrate(scores, failed, np.ones(len(scores)), 100)(scores)
        for at, (low, high) in enumerate(ranges):
            chosen = (scores > low) & (scores <= high)
            promised[at] += values[chosen].sum()
            true[at] += failed[chosen].sum()
    assert promised / true == pytest.approx([1.0, 1.0, 1.0], abs=0.05)


def test_rows_with_the_same_score_are_one_point_in_any_order() -> None:
    scores = np.repeat([-1.0, 2.0], 1000)
    failed = np.concatenate([np.arange(1000) >= 900, np.arange(1000) >= 400]).astype(float)
    noise = 1e-6 * np.tile(np.arange(1000) % 8, 2)  # of 32-bit sums, in the order of the rows
    for same in (scores, scores + noise):
        curve = calibrate(same, failed, np.ones(2000), 500)
        assert curve(np.array([-1.0, 2.0])) == pytest.approx([0.1, 0.6])


def test_weights_stand_for_rows() -> None:
    scores, failed = drawn(300)
    weights = np.random.default_rng(3).integers(1, 4, 300)
    weighted = calibrate(scores, failed, weights.astype(float), 500)
    repeated = calibrate(np.repeat(scores, weights), np.repeat(failed, weights), np.ones(weights.sum()), 500)
    assert weighted(scores) == pytest.approx(repeated(scores), abs=0.02)
    with pytest.raises(ValueError, match="scores: there are none"):
        calibrate(np.zeros(0), np.zeros(0), np.zeros(0), 5)
