"""Neither runs that are cancelled nor the end of the observation change how probable a failure is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from pharoah_learning.hazard_fits import Fleet, learn_hazards
from pharoah_learning.hazards import HORIZONS
from pharoah_protocol.vocabulary import WorseDirection

UNITS, HOURS = 4000, 72
QUIET_HAZARD, SLOW_HAZARD = 0.002, 0.022
"""Per hour."""
DAY = max(HORIZONS)


class Truth(NamedTuple):
    """A fleet, and when its units would fail if nobody cancelled them."""

    fleet: Fleet
    slow: np.ndarray
    """Shape (units, hours)."""
    fails_at: np.ndarray


def simulated(rng: np.random.Generator, cancels: float, slow_cancels: float) -> Truth:
    """Units become slow at some hour, stay so, and fail sooner. Users cancel with these rates per hour."""
    hour = np.arange(HOURS)
    slow = hour >= rng.uniform(-0.3 * HOURS, 2 * HOURS, UNITS)[:, None]
    fails = rng.random(slow.shape) < np.where(slow, SLOW_HAZARD, QUIET_HAZARD)
    ends = rng.random(slow.shape) < np.where(slow, slow_cancels, cancels)
    fails_at, cancelled_at = (np.where(one.any(axis=1), one.argmax(axis=1), 10 * HOURS) for one in (fails, ends))
    last = np.minimum(np.minimum(fails_at, cancelled_at), HOURS - 1)
    failed = fails_at <= np.minimum(cancelled_at, HOURS - 1)
    features = slow[:, :, None].astype(np.float32)
    worse = (WorseDirection.HIGHER,)
    fleet = Fleet(("slow",), worse, ("compute",), (), features, last, failed.astype(int), np.full(UNITS, -1))
    return Truth(fleet, slow, fails_at)


@pytest.mark.parametrize(
    ("cancels", "slow_cancels"), [(0.0, 0.0), (0.02, 0.02), (0.002, 0.06)], ids=["none", "by chance", "slow ones"]
)
def test_probabilities_are_those_of_a_fleet_that_is_left_alone(cancels: float, slow_cancels: float) -> None:
    rng = np.random.default_rng(4)
    fitted_on, held_out = (simulated(rng, cancels, slow_cancels) for _ in range(2))
    model = learn_hazards(fitted_on.fleet, held_out.fleet, seed=1)
    features = np.array([[0.0], [1.0]], dtype=np.float32)
    quiet, slow = model.score(features, np.full(2, -1)).probability[:, -1]
    assert slow == pytest.approx(1 - (1 - SLOW_HAZARD) ** DAY, rel=0.12), "closed form: slow units stay slow"
    alone = simulated(np.random.default_rng(5), 0.0, 0.0)
    unit, hour = np.nonzero(
        (alone.fails_at[:, None] >= np.arange(HOURS)) & ~alone.slow & (np.arange(HOURS) < HOURS - DAY)
    )
    assert quiet == pytest.approx((alone.fails_at[unit] - hour < DAY).mean(), rel=0.12)


def test_a_fleet_that_was_observed_for_less_than_a_horizon_is_an_error() -> None:
    fleet = simulated(np.random.default_rng(6), 0.0, 0.0).fleet
    short = fleet._replace(features=fleet.features[:, : DAY - 1], last=fleet.last.clip(max=DAY - 2))
    with pytest.raises(ValueError, match=f"observed for {DAY - 1} hours"):
        learn_hazards(short, fleet, seed=1)
