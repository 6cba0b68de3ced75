"""Is a node slower than its fleet: false alarms as promised, faults found, bad nodes left out, clear errors."""

from __future__ import annotations

from math import log, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import expon, norm, wasserstein_distance

from pharoah_learning.fleet_comparison import (
    MIN_SLOWDOWN,
    Basis,
    Difference,
    Quantity,
    compare_run,
    compare_with_past,
    learn_criterion,
    log_slowness,
)
from pharoah_learning.models.robust_scores import conformal_p, core_members, least_members, measure_spread
from pharoah_learning.models.run_differences import centroids_of_others

REPEATS = 30


def runs(rng: np.random.Generator, nodes: int, times: int = 1) -> np.ndarray:
    """Logarithms of seconds of shape (nodes, times, repeats): nodes differ by 0.4 %, repeats by 0.6 %."""
    own = rng.normal(0, 0.004, (nodes, 1, 1)) + rng.normal(0, 0.001, (nodes, times, 1))
    return own + rng.normal(0, 0.006, (nodes, times, REPEATS))


def fleet(values: np.ndarray) -> dict[str, list[np.ndarray]]:
    return {f"n{number:03}": list(of) for number, of in enumerate(values)}


def test_healthy_nodes_are_called_slower_as_seldom_as_promised() -> None:
    """With 200 nodes and a level of 0.05, 0.0447 is expected: (#larger + 1.5) / 201.5 <= 0.05 allows 8 of 201."""
    rng, called = np.random.default_rng(1), []
    for _ in range(30):
        criterion = learn_criterion(fleet(runs(rng, 200, 6)))
        for times in runs(rng, 100, 6):
            comparisons = (compare_run(criterion, times[-1], past, 0.05) for past in ((), list(times[:-1])))
            called.append([one.difference is Difference.SLOWER for one in comparisons])
    assert np.mean(called, axis=0) == pytest.approx([0.043, 0.043], abs=0.012)


def test_both_criteria_see_their_own_faults() -> None:
    rng = np.random.default_rng(2)
    criterion = learn_criterion(fleet(runs(rng, 200, 6)))
    healthy, slow, few_slow = runs(rng, 50, 6), runs(rng, 50, 6), runs(rng, 50, 6)
    slow[:, -1] += 0.03
    few_slow[:, -1, ::5] += 0.05
    for times, expected in ((healthy, False), (slow, True), (few_slow, True)):
        found = [compare_run(criterion, of[-1], list(of[:-1])) for of in times]
        assert np.mean([one.difference is Difference.SLOWER for one in found]) == pytest.approx(
            float(expected), abs=0.06
        )
        assert {one.basis for one in found} == {Basis.FLEET_AND_PAST}
    assert np.median([compare_run(criterion, of[-1]).slowdown_ratio for of in slow]) == pytest.approx(1.03, abs=0.006)


def test_a_change_that_the_fleet_cannot_show_is_seen_in_the_past() -> None:
    """1 % is 2.5 standard deviations of nodes, and 5 of what one node does from run to run."""
    rng = np.random.default_rng(3)
    criterion = learn_criterion(fleet(runs(rng, 200, 6)))
    changed = runs(rng, 100, 6)
    changed[:, -1] += 0.01
    alone = np.mean([compare_run(criterion, of[-1]).difference is Difference.SLOWER for of in changed])
    both = np.mean([compare_run(criterion, of[-1], list(of[:-1])).difference is Difference.SLOWER for of in changed])
    assert alone < 0.7 < 0.95 < both


@pytest.mark.parametrize("share", [0.0, 0.02, 0.05])
def test_planted_bad_nodes_are_left_out_and_good_ones_are_kept(share: float) -> None:
    rng, dropped_bad, dropped_good = np.random.default_rng(4), [], []
    for _ in range(10):
        values, bad = runs(rng, 200), int(200 * share)
        values[:bad] += 0.04
        left_out = {int(name[1:]) for name in learn_criterion(fleet(values)).left_out}
        dropped_bad += [number in left_out for number in range(bad)]
        dropped_good += [number in left_out for number in range(bad, 200)]
    assert np.mean(dropped_bad or [1]) >= 0.95
    assert np.mean(dropped_good) <= 0.003


def test_bad_nodes_in_the_reference_change_nothing_that_matters() -> None:
    rng = np.random.default_rng(5)
    values = runs(rng, 240)
    clean = learn_criterion(fleet(values[12:]))
    values[:12] += 0.04
    dirty = learn_criterion(fleet(values))
    assert dirty.left_out == tuple(f"n{number:03}" for number in range(12))
    assert dirty.centroid == pytest.approx(clean.centroid)
    assert dirty.scores == pytest.approx(clean.scores)


def test_two_kinds_of_nodes_are_not_one_reference() -> None:
    values = runs(np.random.default_rng(6), 200)
    values[:60] += 0.2
    criterion = learn_criterion(fleet(values))
    found = compare_run(criterion, values[0, 0])
    assert found.difference is Difference.UNDECIDED
    assert "60 of 200 nodes are unlike the rest" in found.reason


@given(st.floats(1e-6, 1e6), st.integers(0, 100))
def test_the_unit_does_not_matter(factor: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = np.exp(runs(rng, 160, 1))
    one = learn_criterion(fleet(np.log(seconds)))
    other = learn_criterion(fleet(np.log(seconds * factor)))
    run = np.exp(runs(rng, 1)[0, 0]) * 1.01
    here, there = compare_run(one, log_slowness(run)), compare_run(other, log_slowness(run * factor))
    assert here.difference is there.difference
    assert there.p_value == pytest.approx(here.p_value, rel=1e-3)


@given(st.integers(0, 100), st.floats(0, 0.1))
def test_a_slower_run_is_never_less_suspicious(seed: int, more: float) -> None:
    rng = np.random.default_rng(seed)
    criterion = learn_criterion(fleet(runs(rng, 150)))
    run = runs(rng, 1)[0, 0]
    assert compare_run(criterion, run + more).p_value <= compare_run(criterion, run).p_value


def test_throughput_is_the_other_way_round() -> None:
    seconds = [0.5, 0.25]
    assert log_slowness([1 / one for one in seconds], Quantity.THROUGHPUT) == pytest.approx(log_slowness(seconds))


@pytest.mark.parametrize("bad", [nan, float("inf"), 0.0, -1.0])
def test_what_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=r"seconds: .* is not a positive finite number"):
        log_slowness([1.0, bad])
    with pytest.raises(ValueError, match="one list of numbers"):
        log_slowness(np.ones((2, 2)))


def test_a_repeat_that_is_not_finite_is_refused() -> None:
    good = {"n1": [np.zeros(REPEATS)]}
    with pytest.raises(ValueError, match="run: nan is not a finite logarithm"):
        learn_criterion({"n1": [np.full(REPEATS, nan)]})
    with pytest.raises(ValueError, match="run: inf is not a finite logarithm"):
        compare_run(learn_criterion(good), np.full(REPEATS, float("inf")))
    with pytest.raises(ValueError, match="at least 1 is needed, not 30 and 0"):
        learn_criterion(good, past_runs=0)


def test_constant_columns_and_ties() -> None:
    """All nodes show the same, as with a coarse clock: only what is more than the least slowdown is called slower."""
    criterion = learn_criterion(fleet(np.zeros((150, 1, REPEATS))))
    assert criterion.left_out == ()
    equal = compare_run(criterion, np.zeros(REPEATS))
    assert (equal.difference, equal.p_value) == (Difference.NONE, 1.0)
    assert compare_run(criterion, np.full(REPEATS, 0.9 * MIN_SLOWDOWN)).difference is Difference.NONE
    assert compare_run(criterion, np.full(REPEATS, 1.1 * MIN_SLOWDOWN)).difference is Difference.SLOWER


def test_too_few_nodes_say_what_is_needed() -> None:
    rng = np.random.default_rng(7)
    criterion = learn_criterion(fleet(runs(rng, 148)))
    assert compare_run(criterion, runs(rng, 1)[0, 0]).reason == (
        "149 healthy nodes are needed; there are 148, or 3 past runs of the node are needed; there are 0"
    )
    assert compare_run(criterion, np.zeros(5)).reason == "a run of 30 repeats is needed; this one has 5"
    with pytest.raises(ValueError, match="no node has a run of 30 repeats"):
        learn_criterion({"n1": [np.zeros(5)]})
    with pytest.raises(ValueError, match="level: expected a number between 0 and 1"):
        compare_run(criterion, np.zeros(REPEATS), level=1.0)


def test_a_small_fleet_compares_a_node_with_its_own_past() -> None:
    """Student's prediction interval is exact for normal means; the three numbers share the level (Bonferroni)."""
    rng = np.random.default_rng(8)
    criterion = learn_criterion(fleet(runs(rng, 4)))
    healthy = [compare_run(criterion, of[-1], list(of[:-1]), 0.05) for of in runs(rng, 1000, 6)]
    assert {one.basis for one in healthy} == {Basis.PAST}
    assert 0.015 < np.mean([one.p_value <= 0.05 for one in healthy]) < 0.06
    assert np.mean([one.difference is Difference.SLOWER for one in healthy]) < 0.05
    slow = runs(rng, 200, 6)
    slow[:, -1] += 0.03
    assert np.mean([compare_with_past(of[-1], list(of[:-1])).difference is Difference.SLOWER for of in slow]) > 0.9
    assert compare_with_past(slow[0, -1], [slow[0, 0]]).difference is Difference.UNDECIDED


def test_the_area_is_the_one_sided_part_of_the_wasserstein_distance() -> None:
    """For runs that are slower in every quantile, the area is the whole distance, which scipy computes as well."""
    rng = np.random.default_rng(9)
    criterion = learn_criterion(fleet(runs(rng, 200)))
    run = criterion.centroid + np.abs(rng.normal(0, 0.01, REPEATS))
    effect = log(compare_run(criterion, run).slowdown_ratio)
    assert effect >= wasserstein_distance(run, criterion.centroid) - 1e-12


@given(st.integers(2, 9), st.integers(0, 100))
def test_each_node_is_compared_with_the_median_of_the_others(count: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 5, (count, 3)).astype(float)
    expected = [np.median(np.delete(values, at, axis=0), axis=0) for at in range(count)]
    assert centroids_of_others(values) == pytest.approx(np.array(expected))


def test_conformal_p_values_are_closed_forms() -> None:
    scores = np.arange(1.0, 200.0)
    assert conformal_p(scores, 0.5) == 1.0
    assert conformal_p(scores, 199.0) == pytest.approx(2.5 / 200.5)
    assert conformal_p(scores, 199.1) <= 1.5 / 200.5
    assert [least_members(level) for level in (0.01, 0.05)] == [149, 29]
    assert conformal_p(np.arange(149.0), 148.5) <= 0.01


@pytest.mark.parametrize("draw", ["exponential", "normal"])
def test_the_extrapolated_tail_promises_no_more_than_it_holds(draw: str) -> None:
    """The true probability beyond the score whose p-value is 1 / 2000, over references of 200; the normal distribution
    has a lighter tail than the exponential one, so there it holds more than it promises."""
    rng, level, beyond = np.random.default_rng(10), 1 / 2000, []
    true_tail = {"exponential": expon.sf, "normal": norm.sf}[draw]
    for _ in range(300):
        scores = np.sort(getattr(rng, f"standard_{draw}")(200))
        largest = scores[-1] + 1e-9
        if conformal_p(scores, largest) > level:
            largest = brentq(lambda score, of=scores: conformal_p(of, score) - level, largest, 100)
        beyond.append(true_tail(largest))
    assert level / 20 < np.mean(beyond) <= level


def test_robust_scales_are_those_of_a_normal_distribution() -> None:
    values = norm.ppf((np.arange(10_000) + 0.5) / 10_000)[:, None] * 3 + 7
    middle, scale = measure_spread(values, 1e-6)
    assert (middle[0], scale[0]) == (pytest.approx(7, abs=1e-3), pytest.approx(3, rel=1e-3))
    assert core_members(np.vstack([values, [[7 + 3 * 4.0]]]), np.array([3.5]), 1e-6)[-1] == np.False_
