"""What counters are expected to count: learned from a fleet, and taken out of the features."""

from __future__ import annotations

import numpy as np
import pytest

from pharoah_learning.expected_counts import MAX_FACTOR, NOTHING_EXPECTED, learn_expected_counts
from pharoah_learning.fleet_features import fleet_features
from pharoah_protocol.signal_features import COUNTER_FEATURES, FEATURES, HOURS, SignalKind

UNITS, LENGTH = 2000, 72
NAMES = (
    *(f"errors.{feature}" for feature in FEATURES[SignalKind.COUNTER]),
    *(f"heat.{feature}" for feature in FEATURES[SignalKind.GAUGE]),
    "age",
)
EFFECT = 0.7
EVENTS = [NAMES.index(f"errors.{feature}") for feature in COUNTER_FEATURES]


def features_of(counts: np.ndarray, heat: np.ndarray, age: np.ndarray) -> np.ndarray:
    parts = [fleet_features(counts, SignalKind.COUNTER), fleet_features(heat, SignalKind.GAUGE)]
    parts.append(np.broadcast_to(age[:, None, None], (*counts.shape, 1)))
    return np.concatenate(parts, axis=2).astype(np.float32)


@pytest.fixture(scope="module")
def fleet() -> tuple[np.ndarray, np.ndarray]:
    """The features and the ages of units whose counter counts exp(EFFECT) times as much for each year of age."""
    rng = np.random.default_rng(1)
    age = rng.uniform(0, 4, UNITS)
    counts = rng.poisson(0.5 * np.exp(EFFECT * age)[:, None] * rng.gamma(2, 0.5, (UNITS, LENGTH))).astype(float)
    return features_of(counts, rng.normal(60, 1, counts.shape), age), age


def test_what_age_does_to_a_counter_is_learned(fleet: tuple[np.ndarray, np.ndarray]) -> None:
    features, age = fleet
    expected = learn_expected_counts(NAMES, features, np.ones(features.shape[:2], dtype=bool))
    assert [NAMES[at] for at in expected.static] == ["age"]
    assert [NAMES[at] for at in expected.counted] == [f"errors.{feature}" for feature in COUNTER_FEATURES]
    assert expected.effects == pytest.approx(np.array([[EFFECT]]), abs=0.02)
    relative = np.expm1(expected.relative(features[:, -1])[:, NAMES.index("errors.past")])
    assert abs(np.corrcoef(relative, age)[0, 1]) < 0.1
    assert np.corrcoef(np.expm1(features[:, -1, NAMES.index("errors.past")]), age)[0, 1] > 0.5


def test_features_are_those_of_a_unit_that_counted_so_much_less(fleet: tuple[np.ndarray, np.ndarray]) -> None:
    """Counting twice as much where twice as much is expected changes no feature of events; nothing else changes."""
    features, age = fleet
    expected = learn_expected_counts(NAMES, features, np.ones(features.shape[:2], dtype=bool))
    counts = np.random.default_rng(2).poisson(np.linspace(100, 2000, LENGTH), (50, LENGTH)).astype(float)
    heat = np.full(counts.shape, 60.0)
    older = features_of(2 * counts, heat, np.full(50, age.mean() + np.log(2) / expected.effects[0, 0]))[:, -1]
    mean = features_of(counts, heat, np.full(50, age.mean()))[:, -1]
    assert expected.relative(older)[:, EVENTS] == pytest.approx(mean[:, EVENTS], abs=2e-3)
    others = [at for at in range(len(NAMES)) if at not in EVENTS]
    assert (expected.relative(older)[:, others] == older[:, others]).all()


def test_a_unit_unlike_all_others_is_bounded(fleet: tuple[np.ndarray, np.ndarray]) -> None:
    features, _ = fleet
    expected = learn_expected_counts(NAMES, features, np.ones(features.shape[:2], dtype=bool))
    old = features[:1, -1].copy()
    old[:, -1] = 1e6
    assert expected.relative(old)[:, EVENTS] == pytest.approx(
        np.maximum(old[:, EVENTS] - np.log(MAX_FACTOR), 0.0), abs=1e-4
    )


def test_no_events_stay_none(fleet: tuple[np.ndarray, np.ndarray]) -> None:
    """Neither old units nor new ones, of which fewer events are expected."""
    features, _ = fleet
    expected = learn_expected_counts(NAMES, features, np.ones(features.shape[:2], dtype=bool))
    quiet = features[:, -1].copy()
    quiet[:, EVENTS] = 0.0
    assert not expected.relative(quiet)[:, EVENTS].any()


def test_hours_after_the_end_of_a_life_do_not_count(fleet: tuple[np.ndarray, np.ndarray]) -> None:
    features, _ = fleet
    cut = features.copy()
    observed = np.arange(LENGTH) < np.where(np.arange(UNITS) % 2, LENGTH, HOURS.long)[:, None]
    cut[~observed] = 1e6
    expected = learn_expected_counts(NAMES, cut, observed)
    assert expected.effects == pytest.approx(np.array([[EFFECT]]), abs=0.02)


@pytest.mark.parametrize("kept", [lambda name: not name.startswith("errors"), lambda name: name != "age"])
def test_without_counters_or_static_features_nothing_is_expected(kept, fleet: tuple[np.ndarray, np.ndarray]) -> None:
    places = [at for at, name in enumerate(NAMES) if kept(name)]
    features = fleet[0][:, :, places]
    found = learn_expected_counts([NAMES[at] for at in places], features, np.ones(features.shape[:2], dtype=bool))
    assert found is NOTHING_EXPECTED
    assert (found.relative(features[:, -1]) == features[:, -1]).all()


def test_where_all_who_lived_a_day_are_equal_nothing_is_expected(fleet: tuple[np.ndarray, np.ndarray]) -> None:
    """The others, which died within the day, add nothing; a difference in the last digits is none."""
    features = fleet[0][:20].copy()
    features[:12, :, -1] = 3.0
    features[0, :, -1] = np.nextafter(np.float32(3), np.float32(4))
    observed = np.ones(features.shape[:2], dtype=bool)
    observed[12:, HOURS.long - 1 :] = False
    assert learn_expected_counts(NAMES, features, observed) is NOTHING_EXPECTED


def test_a_broken_sensor_and_one_that_begins_late_do_not_decide_what_is_static(
    fleet: tuple[np.ndarray, np.ndarray],
) -> None:
    features = fleet[0].copy()
    features[0, :, NAMES.index("heat.level")] = 1e6
    features[1, :2, -1] = 0.0
    expected = learn_expected_counts(NAMES, features, np.ones(features.shape[:2], dtype=bool))
    assert [NAMES[at] for at in expected.static] == ["age"]


def test_a_counter_that_counted_nothing_has_no_effects(fleet: tuple[np.ndarray, np.ndarray]) -> None:
    features = fleet[0].copy()
    features[:, :, EVENTS] = 0.0
    assert not learn_expected_counts(NAMES, features, np.ones(features.shape[:2], dtype=bool)).effects.any()
