"""When an agent's samples are taken and leave."""

from __future__ import annotations

import asyncio
import random

import pytest

from pharoah_provider.agent import sample_times
from pharoah_provider.agent.sample_times import (
    LEAVES_AFTER_SECONDS,
    MAX_DELAY_SECONDS,
    MAX_PERIOD_SECONDS,
    SHORTEST_PERIOD_SECONDS,
    SampleTimes,
)


class Clocks:
    """Both clocks of a node, and a sleep that lasts as long as it should, and some more."""

    def __init__(self, late: random.Random | None = None) -> None:
        self.now, self.unix, self._late = 50.0, 1_700_000_000.123, late

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.unix += seconds

    async def sleep(self, seconds: float) -> None:
        self.pass_by(seconds + (self._late.uniform(0, 0.02) if self._late else 0.0))

    def times(self, period: float) -> SampleTimes:
        return SampleTimes(period, lambda: self.unix, lambda: self.now, self.sleep)


def test_how_long_a_sample_takes_shows_in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    delays = list[float]()

    def delay(longest: float) -> float:
        delays.append(chance.uniform(0, longest))
        return delays[-1]

    monkeypatch.setattr(sample_times, "random_delay", delay)
    clocks = Clocks(chance)
    times, stated, left = clocks.times(2.0), list[float](), list[float]()

    async def inside() -> None:
        for _ in range(500):
            stated.append(await times.next())
            clocks.pass_by(chance.choice([0.001, 0.3, 0.48]))
            await times.leave()
            left.append(clocks.now)

    asyncio.run(inside())
    began = stated[0]
    assert stated == pytest.approx([began + 2.0 * number for number in range(500)], abs=1e-6)
    assert all(abs(10 * at - round(10 * at)) < 1e-5 for at in stated)
    due = [50.0 + 2.0 * number + LEAVES_AFTER_SECONDS + delay for number, delay in enumerate(delays, 1)]
    late = [at - earliest for at, earliest in zip(left, due, strict=True)]
    assert min(late) > -1e-9 and max(late) <= 0.02 + 1e-9, "no more than a sleep is late; nothing adds up"


def test_a_sample_leaves_before_the_next_one_is_due() -> None:
    assert LEAVES_AFTER_SECONDS + MAX_DELAY_SECONDS < SHORTEST_PERIOD_SECONDS


def test_a_sample_that_takes_longer_than_a_period_leaves_out_others() -> None:
    clocks = Clocks()
    times = clocks.times(2.0)

    async def inside() -> list[float]:
        first = await times.next()
        clocks.pass_by(5.0)
        return [await times.next() - first, clocks.now]

    assert asyncio.run(inside()) == pytest.approx([6.0, 58.0])


def test_a_clock_that_was_set_is_followed() -> None:
    clocks = Clocks()
    times = clocks.times(2.0)

    async def inside() -> list[float]:
        first = await times.next()
        clocks.unix -= 3600
        return [await times.next() - first, await times.next() - first]

    assert asyncio.run(inside()) == pytest.approx([-3598.0, -3596.0], abs=0.1)


@pytest.mark.parametrize("asked", [0.0, -1.0, 1e-9, 1e9, float("nan"), float("inf")])
def test_a_provider_cannot_ask_for_samples_that_follow_a_job(asked: float) -> None:
    assert SHORTEST_PERIOD_SECONDS <= Clocks().times(asked).period_seconds <= MAX_PERIOD_SECONDS
