"""Forecasts of what is used up, for samples of a long life and for samples with gaps."""

from __future__ import annotations

import random
from collections.abc import Iterable
from math import log2

import pytest

from pharoah.local_alerts._exhaustion import RATES, SHORTEST_BLOCK_SAMPLES, Supply

DAY_SECONDS = 86_400
GAP_SECONDS = 300


def _supply(samples: Iterable[tuple[float, float]]) -> Supply:
    supply = Supply()
    for at, left in samples:
        supply.add(at, left)
    return supply


def test_a_leak_that_begins_after_a_day_is_seen_within_minutes() -> None:
    chance, usual, rate = random.Random(1), 1e9, 1e6
    supply = _supply((float(at), usual + chance.gauss(0, 1e5)) for at in range(DAY_SECONDS))
    assert supply.forecast() is None
    for leaked in range(300):
        supply.add(float(DAY_SECONDS + leaked), usual - rate * leaked + chance.gauss(0, 1e5))
    found = supply.forecast()
    assert found is not None
    assert found.seconds == pytest.approx(usual / rate - 300, rel=0.05)
    assert found.span_seconds < 300, "nothing from before the leak is in it"


def test_the_memory_of_a_long_life_grows_with_the_logarithm_of_its_samples() -> None:
    supply = _supply((float(at), 1.0) for at in range(DAY_SECONDS))
    assert sum(map(len, supply._left)) <= (RATES + 1) * log2(DAY_SECONDS)
    assert len(supply._open) < SHORTEST_BLOCK_SAMPLES


@pytest.mark.parametrize("after", [27, 60, 200])
def test_a_gap_in_the_samples_does_not_change_the_rate(after: int) -> None:
    """Samples once a second, but for five minutes in which nothing was read."""
    times = [*range(100), *range(100 + GAP_SECONDS, 100 + GAP_SECONDS + after)]
    supply = _supply((float(at), 1000.0 * (1000 - at)) for at in times)
    found = supply.forecast()
    assert found is not None
    assert found.rate == pytest.approx(1000)
    assert found.seconds == pytest.approx(1000 - times[-1])
    assert supply.rate(found.span_seconds) == pytest.approx(1000)


def test_the_rate_is_that_of_the_span_that_is_asked_for() -> None:
    """A supply that is used up three times as fast in its last minute as before."""
    supply = _supply((float(at), -float(at) if at < 600 else -600.0 - 3 * (at - 600)) for at in range(660))
    assert supply.rate(24) == pytest.approx(3)
    assert supply.rate(400) == pytest.approx(1, abs=0.4)
    assert Supply().rate(24) == 0
