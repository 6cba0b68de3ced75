"""Hazard models on a small fleet whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evaluation.survival.simulated_fleet import ARCHETYPES, NAMES, RESOURCES, Simulated, simulate
from pharoah_learning.expected_counts import NOTHING_EXPECTED
from pharoah_learning.hazard_fits import Fleet, learn_hazards
from pharoah_learning.hazards import HORIZONS, HazardModel, place_among

SMALL = Simulated(units=800, hours=96, degrading_share=0.3)
QUIET_HOURS = 5_000


@pytest.fixture(scope="module")
def fleets() -> tuple[Fleet, Fleet]:
    rng = np.random.default_rng(1)
    return simulate(SMALL, rng).fleet, simulate(SMALL, rng).fleet


@pytest.fixture(scope="module")
def model(fleets: tuple[Fleet, Fleet]) -> HazardModel:
    return learn_hazards(*fleets, seed=1, most_quiet_hours=QUIET_HOURS)


def last_hours(fleet: Fleet) -> np.ndarray:
    return fleet.features[np.arange(len(fleet.last)), fleet.last]


def test_units_that_fail_next_have_the_highest_risk(fleets: tuple[Fleet, Fleet], model: HazardModel) -> None:
    other = fleets[1]
    scores = model.score(last_hours(other), other.group)
    failed = other.cause > 0
    higher = (scores.risk[failed][:, None] > scores.risk[~failed]).mean()
    assert higher > 0.85
    named = scores.hazard[failed].argmax(axis=1) == other.cause[failed] - 1
    assert named.mean() > 0.6, "some fail without a sign"


def test_probabilities_rise_with_the_horizon_and_add_up(fleets: tuple[Fleet, Fleet], model: HazardModel) -> None:
    other = fleets[1]
    unit, hour = np.nonzero(other.observed & (np.arange(96) < 96 - max(HORIZONS)))
    found = model.score(other.features[unit, hour], other.group[unit]).probability
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found.mean(axis=0)) > 0).all()


def test_probabilities_add_up_to_the_failures_that_there_were_without_cancelling() -> None:
    """Each fleet alone has some 30 units that fail, so three of them are taken together."""
    failures = expected = 0.0
    for seed in (1, 2, 3):
        rng = np.random.default_rng(seed)
        train, held_out = simulate(SMALL, rng), simulate(SMALL, rng)
        fleet = held_out.fleet
        model = learn_hazards(train.fleet, fleet, seed=1, most_quiet_hours=QUIET_HOURS)
        unit, hour = np.nonzero(fleet.observed & (np.arange(96) < 96 - max(HORIZONS)))
        failures += (held_out.would_fail[unit] - hour < max(HORIZONS)).sum()
        expected += model.score(fleet.features[unit, hour], fleet.group[unit]).probability[:, -1].sum()
    assert 0.7 < failures / expected < 1.1


def test_a_unit_does_not_fail_when_no_resource_does(fleets: tuple[Fleet, Fleet], model: HazardModel) -> None:
    features, group = last_hours(fleets[1]), np.zeros(len(fleets[1].group), dtype=np.intp)
    logits = model.linear(features, 0).T.astype(float).reshape(len(features), -1, len(RESOURCES))[:, 1:]
    survives = (1 - 1 / (1 + np.exp(-logits))).prod(axis=2)
    found = model.outputs(features, group).logit[:, 1:]
    assert found == pytest.approx(np.log((1 - survives) / survives), rel=1e-3, abs=1e-3)


def test_a_unit_is_scored_alone_as_in_a_fleet(fleets: tuple[Fleet, Fleet], model: HazardModel) -> None:
    features, group = last_hours(fleets[1])[:7], fleets[1].group[:7]
    together = model.score(features, group)
    for at in range(7):
        alone = model.score(features[at : at + 1], group[at : at + 1])
        assert alone.risk[0] == pytest.approx(together.risk[at], rel=1e-4)


def test_a_score_that_differs_in_the_last_digit_is_the_same_score() -> None:
    """A matrix product adds up in another order for the last rows, so equal units would never be equal."""
    others = np.array([1.0, 1.0, 2.0, 2.0])
    for noise in (-1e-6, 0.0, 1e-6):
        assert place_among(others, 2.0 + noise) == 0.75
        assert place_among(others + noise, 1.0) == 0.25
    assert place_among(others, 1.5) == 0.5


def test_scores_are_those_of_relative_features_and_the_features_stay(
    fleets: tuple[Fleet, Fleet], model: HazardModel
) -> None:
    features, group = last_hours(fleets[1]), fleets[1].group
    assert [model.names[at] for at in model.expected.static] == ["age", "utilisation"]
    before = features.copy()
    found = model.score(features, group).risk
    without = replace(model, expected=NOTHING_EXPECTED)
    assert without.score(model.expected.relative(features), group).risk == pytest.approx(found, rel=1e-4, abs=1e-4)
    assert np.abs(without.score(features, group).risk - found).max() > 0.1
    assert (features == before).all()


def test_the_same_fleets_and_seed_give_the_same_model(fleets: tuple[Fleet, Fleet], model: HazardModel) -> None:
    again = learn_hazards(*fleets, seed=1, most_quiet_hours=QUIET_HOURS)
    assert (again.common == model.common).all() and again.calibrations == model.calibrations


def test_a_group_that_is_not_known_gets_the_common_coefficients(model: HazardModel) -> None:
    assert (model.group[-1] == 0).all() and len(model.group) == len(ARCHETYPES) + 1


def test_a_resource_without_failures_has_no_hazard_and_no_failures_are_an_error(fleets: tuple[Fleet, Fleet]) -> None:
    fleet, other = fleets
    storage = RESOURCES.index("storage") + 1
    without = fleet._replace(cause=np.where(fleet.cause == storage, 0, fleet.cause))
    scores = learn_hazards(without, other, seed=1, most_quiet_hours=QUIET_HOURS).score(last_hours(other), other.group)
    assert scores.hazard[:, storage - 1].max() < 1e-9
    with pytest.raises(ValueError, match="nothing has failed"):
        learn_hazards(fleet._replace(cause=np.zeros_like(fleet.cause)), other, seed=1)


def test_the_simulated_fleet_is_what_it_says() -> None:
    truth = simulate(replace(SMALL, units=4000), np.random.default_rng(2))
    fleet = truth.fleet
    assert fleet.features.shape == (4000, 96, len(NAMES)) and len(NAMES) == 34
    failed = fleet.cause > 0
    assert (truth.would_fail[failed] == fleet.last[failed]).all()
    assert truth.degrading[failed].mean() > 0.5 and not truth.degrading[~failed].any()
    expected = np.nansum(-np.expm1(-truth.hazard))
    assert failed.sum() == pytest.approx(expected, rel=0.15), "failures follow the true hazard"
