"""Segments of features: what is fitted is what is published, and effects rise only."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pharoah_learning.hazard_basis import HazardBasis
from pharoah_learning.hazards import HazardModel
from pharoah_protocol.signal_features import FEATURES, SignalKind, worse_features
from pharoah_protocol.vocabulary import WorseDirection

HIGHER, LOWER = WorseDirection.HIGHER, WorseDirection.LOWER
WORSE = (HIGHER, LOWER, None)


@pytest.fixture(scope="module")
def features() -> NDArray[np.float32]:
    return np.random.default_rng(1).gamma(1.0, 2.0, (3000, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def basis(features: NDArray[np.float32]) -> HazardBasis:
    near = np.arange(len(features)) % 50 == 0
    return HazardBasis.from_features(features, np.where(near, 1.0, 3.0), near, WORSE, 2)


def model_of(basis: HazardBasis, fits: NDArray[np.float64]) -> HazardModel:
    common, group, constant = basis.raw(fits)
    return HazardModel(
        names=("a", "b", "c"), resources=("r",), groups=("g", "h"), pieces=basis.pieces, common=common, group=group,
        constant=constant, calibrations=(),
    )  # fmt: skip


def test_the_published_pieces_give_what_was_fitted(features: NDArray[np.float32], basis: HazardBasis) -> None:
    rng = np.random.default_rng(2)
    group = rng.integers(-1, 2, len(features))
    columns = basis.columns(features, group)
    assert columns.shape[1] == len(basis.penalty) == len(basis.at_least_zero)
    fits = rng.normal(size=(columns.shape[1] + 1, 4))
    model, wanted = model_of(basis, fits), columns @ fits[:-1] + fits[-1]
    for number in (-1, 0, 1):
        found = model.linear(features[group == number], number).T
        assert found == pytest.approx(wanted[group == number], rel=1e-3, abs=2e-3)


def test_effects_rise_in_the_direction_in_which_a_feature_is_worse(
    features: NDArray[np.float32], basis: HazardBasis
) -> None:
    """With any coefficients that keep their bounds, for a unit of no group."""
    rng = np.random.default_rng(3)
    fits = rng.normal(size=(len(basis.penalty) + 1, 2))
    fits[:-1][basis.at_least_zero] = np.abs(fits[:-1][basis.at_least_zero])
    model = model_of(basis, fits)
    for at, worse in enumerate(WORSE):
        rows = np.repeat(features[:1], 200, axis=0)
        rows[:, at] = np.linspace(0.0, 40.0, 200)
        steps = np.diff(model.linear(rows, -1), axis=1)
        assert worse is not HIGHER or (steps >= -1e-4).all()
        assert worse is not LOWER or (steps <= 1e-4).all()
        assert np.abs(steps).max() > 1e-3, "and there is an effect"


def test_knots_stand_in_order_and_those_before_failures_are_of_those_hours() -> None:
    features = np.arange(1000, dtype=np.float32)[:, None]
    near = np.arange(1000) >= 900
    low = HazardBasis.from_features(features, np.ones(1000), near, (HIGHER,), 0).pieces.low[:, 0]
    assert (np.diff(low) >= 0).all()
    assert {round(float(knot)) for knot in low[1:]} == {899, 989, 998, 984, 994}


def test_only_what_a_counter_counted_all_day_may_speak_for_a_unit() -> None:
    counter = dict(zip(FEATURES[SignalKind.COUNTER], worse_features(SignalKind.COUNTER, None), strict=True))
    assert counter == {"recent": HIGHER, "past": None, "excess": HIGHER, "outlook": HIGHER}
    for worse in (*WorseDirection, None):
        assert set(worse_features(SignalKind.GAUGE, worse)) == {worse}
