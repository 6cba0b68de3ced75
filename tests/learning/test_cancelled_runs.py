"""Neither runs that are cancelled nor the end of the observation change how probable a failure is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from pharoah_learning.hazard_fits import Fleet, TooLittleSeen, learn_hazards
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


def steady(rng: np.random.Generator, windows: np.ndarray, hazard: float = 0.005) -> Fleet:
    """Units that fail at one rate, each observed for so many hours at most; a feature that says nothing."""
    hours = int(windows.max())
    fails_at = rng.geometric(hazard, len(windows)) - 1
    last, cause = np.minimum(fails_at, windows - 1), (fails_at < windows).astype(int)
    features = rng.random((len(windows), hours, 1)).astype(np.float32)
    group = np.full(len(windows), -1)
    return Fleet(("noise",), (WorseDirection.HIGHER,), ("compute",), (), features, last, cause, group, windows)


@pytest.mark.parametrize("windows", [[27], [48], [168], [36, 168], [30, 72, 168]], ids=str)
def test_the_end_of_the_observation_is_no_sign(windows: list[int]) -> None:
    rng = np.random.default_rng(7)
    hours = np.resize(windows, 12_000)
    model = learn_hazards(steady(rng, hours), steady(rng, hours), seed=1)
    found = model.score(rng.random((500, 1)).astype(np.float32), np.full(500, -1)).probability[:, -1].mean()
    assert found == pytest.approx(1 - (1 - 0.005) ** DAY, rel=0.12), "closed form"


@pytest.mark.parametrize("hours", [5, DAY - 1, DAY])
def test_a_fleet_that_was_observed_for_less_than_a_horizon_is_an_error(hours: int) -> None:
    whole, short = (steady(np.random.default_rng(6), np.full(500, window)) for window in (3 * DAY, hours))
    with pytest.raises(TooLittleSeen, match=r"no (failure|hour without one) is known within \d+ hours"):
        learn_hazards(short, whole, seed=1)
    with pytest.raises(TooLittleSeen, match=r"no (failure|hour without one) is known within \d+ hours"):
        learn_hazards(whole, short, seed=1)
    with pytest.raises(TooLittleSeen, match="nothing has failed"):
        learn_hazards(whole._replace(cause=np.zeros_like(whole.cause)), whole, seed=1)
