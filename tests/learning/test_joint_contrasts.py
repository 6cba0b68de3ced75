"""Contrasts that do not hide themselves, against closed forms and recovered truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pharoah_learning.incompatible_pairs import Call, find_incompatible_pairs
from pharoah_learning.models.contrasts import Contrasts, contrasts, find_called, judge_once, settle, stand_out
from pharoah_learning.models.joint_contrasts import Evidence, excess
from pharoah_learning.models.mantel_haenszel import LogOddsRatio
from pharoah_learning.observations import Observations

VARIANCE = 0.04


def a_quarter_strong(seed: int) -> tuple[LogOddsRatio, np.ndarray]:
    """Log odds ratios of 20 archetypes in 8 contexts. A quarter of the pairs has an odds ratio of 5."""
    rng = np.random.default_rng(seed)
    strong = rng.permuted(np.arange(20)[:, None] < np.full(8, 5), axis=0)
    value = rng.normal(0, np.sqrt(VARIANCE), strong.shape) + np.log(5) * strong
    return LogOddsRatio(value, np.full(strong.shape, VARIANCE)), strong


@pytest.mark.parametrize("seed", range(5))
def test_many_strong_pairs_neither_hide_themselves_nor_widen_the_spread(seed: int) -> None:
    """Each is 1.6 above the others, eight standard errors. A spread that they widen would hide all of them."""
    own, strong = a_quarter_strong(seed)
    found = contrasts(own, np.full(strong.shape, 1e-9))
    assert found.settled and found.spread < 0.02
    assert (find_called(found) & strong).sum() >= 39 and (find_called(found) & ~strong).sum() <= 6  # 2 on average


def test_bad_pairs_that_are_compared_with_each_other_would_hide_and_no_other_start_does() -> None:
    """With nothing set aside they raise what is common and widen the spread: that start stays where it is. The larger
    half, the truth, and all but a few archetypes lead to the same pairs."""
    own, strong = a_quarter_strong(1)

    def excess_of(aside: np.ndarray, spread: float) -> LogOddsRatio:
        weight = np.where(aside, 0.0, 1 / (VARIANCE + spread))
        others = weight.sum(axis=0) - weight
        mean = ((weight * own.value).sum(axis=0) - weight * own.value) / others
        return LogOddsRatio(own.value - mean, VARIANCE + spread + 1 / others)

    def after_rounds(aside: np.ndarray) -> np.ndarray:
        for _ in range(10):
            found = judge_once(excess_of, lambda _, p: p, aside, 0.0)
            aside = stand_out(found)
        return find_called(found)

    expected = find_called(contrasts(own, np.full(strong.shape, 1e-9)))
    assert (after_rounds(strong) == expected).all()
    assert (after_rounds(own.value > np.quantile(own.value, 0.3, axis=0)) == expected).all()
    assert not (after_rounds(np.zeros_like(strong)) & strong).any()


def test_rounds_that_go_in_a_circle_end_and_name_the_pairs() -> None:
    """Two pairs of which each stands out exactly while the other is no comparison for it."""

    def excess_of(aside: np.ndarray, spread: float) -> LogOddsRatio:
        both_or_none = np.where(aside.any(), 0.0, 9.0)
        return LogOddsRatio(np.array([[both_or_none, both_or_none, 0.0]]), np.ones((1, 3)))

    found: Contrasts = settle((1, 3), excess_of, lambda _, p: p)
    assert not found.settled and found.unsettled.tolist() == [[True, True, False]]


def test_evidence_without_covariances_gives_the_contrasts_of_single_contexts() -> None:
    """With independent contexts the joint model is the weighted mean of the others (closed form), but for the weak
    assumption about common effects."""
    own, _ = a_quarter_strong(3)
    information = np.eye(8) / VARIANCE + np.zeros((20, 1, 1))
    evidence = Evidence(information, own.value / VARIANCE, np.tile(np.arange(8), (20, 1)))
    aside = own.value > 1
    joint = excess(evidence, aside, 0.01)
    weight = np.where(aside, 0.0, 1 / (VARIANCE + 0.01))
    others = weight.sum(axis=0) - weight
    mean = ((weight * own.value).sum(axis=0) - weight * own.value) / others
    assert joint.value == pytest.approx(own.value - mean, abs=0.005)
    assert joint.variance == pytest.approx(VARIANCE + 0.01 + 1 / others, rel=1e-3)


def test_a_bad_value_of_a_fact_makes_no_other_value_look_good_or_bad() -> None:
    """One of four drivers is bad for the first archetype, and another one for all archetypes."""
    rng = np.random.default_rng(4)
    driver, archetype = rng.integers(0, 4, 24_000), rng.integers(0, 6, 24_000)
    odds = np.where((archetype == 0) & (driver == 2), 6.0, 1.0) * np.where(driver == 1, 2.0, 1.0) * 0.06
    names = tuple(f"driver={number}" for number in range(4))
    seen = Observations(
        tuple(map(str, range(6))), names, archetype, driver[:, None] == np.arange(4), {}, rng.random(24_000) < odds
    )
    found = find_incompatible_pairs(seen, 1)
    assert [(one.archetype, one.context) for one in found if one.call is Call.INCOMPATIBLE] == [("0", "driver=2")]
    one = found[0]
    assert one.settled and not one.reason and 4 < one.excess_ratio < 12
    assert find_incompatible_pairs(replace(seen, failed=seen.failed & False), 1) == []
