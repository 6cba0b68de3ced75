"""One caller at its worst keeps no other from the provider: who is served first."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

from pharoah_protocol.vocabulary import Role
from pharoah_serving.costs import Cost, charging, in_thread, meter
from pharoah_serving.principals import Principal
from pharoah_serving.turns import BURST_SECONDS, Turns, alone, give_way
from tests.harness.monitored import HandClock

HEAVY, OTHER, LIGHT = (Principal(Role.TENANT, name) for name in ("heavy/a", "other/a", "light/a"))


class Site:
    """Turns under a clock that is set by hand; `begun` has the names of calls in the order in which they began."""

    def __init__(self) -> None:
        self.time, self.begun = HandClock(0.0), list[str]()
        self.turns = Turns(self.time.clock.steady)
        self._tasks: list[asyncio.Task[None]] = []

    def call(self, who: Principal, name: str, seconds: float) -> asyncio.Event:
        """A call that costs so much; it ends when the event is set."""
        end = asyncio.Event()

        async def work() -> None:
            cost = Cost()
            async with self.turns.turn(who, cost):
                self.begun.append(name)
                await end.wait()
                cost.add(seconds)

        self._tasks.append(asyncio.create_task(work()))
        return end

    async def after(self, seconds: float) -> None:
        """Time passes."""
        await asyncio.sleep(0)
        self.time.now += seconds
        self.turns.look()
        for _ in range(5):
            await asyncio.sleep(0)

    async def done(self) -> None:
        await asyncio.gather(*self._tasks)


def test_a_light_caller_comes_before_the_backlog_of_a_heavy_one() -> None:
    async def work() -> None:
        site = Site()
        first = site.call(HEAVY, "heavy", 2 * BURST_SECONDS)
        await site.after(0.0)
        first.set()
        await site.after(0.0)
        waiting = [site.call(HEAVY, f"heavy {number}", 0.01) for number in range(20)]
        await site.after(0.001)
        light = site.call(LIGHT, "light", 0.01)
        await site.after(0.0)
        assert site.begun == ["heavy", "heavy 0", "light"], "one call over budget was at work already"
        for end in (*waiting, light):
            end.set()
        while len(site.begun) < 22:  # then the backlog
            await site.after(1.0)
        await site.done()

    asyncio.run(work())


def test_an_agent_has_a_smaller_budget_than_a_tenant() -> None:
    """A tenant speaks for all nodes of its jobs, an agent for one node."""

    async def begins_after_four_seconds(role: Role) -> bool:
        """Whether a caller that has used its budget up is within it again."""
        site, who = Site(), Principal(role, "a")
        site.call(who, "used", 2 * BURST_SECONDS).set()
        await site.after(4.0)
        for _ in range(2):  # the second one is over its budget, and a rest for all such callers follows it
            site.call(HEAVY, "heavy", 2 * BURST_SECONDS).set()
            await site.after(0.0)
        site.call(who, "again", 0.01).set()
        await site.after(0.0)
        begun = "again" in site.begun
        while "again" not in site.begun:
            await site.after(1.0)
        await site.done()
        return begun

    async def work() -> None:
        assert await begins_after_four_seconds(Role.TENANT)
        assert not await begins_after_four_seconds(Role.AGENT)

    asyncio.run(work())


def test_callers_over_their_budget_leave_most_of_the_time_to_others_and_take_turns() -> None:
    async def work() -> None:
        site = Site()
        for who in (HEAVY, OTHER):
            site.call(who, "first", 9.0).set()
        await site.after(0.0)
        ends = [site.call(who, f"{who.name} {n}", 0.1) for n in range(2) for who in (HEAVY, OTHER)]
        for end in ends:
            end.set()
        begun = []
        for _ in range(60):
            before = len(site.begun)
            await site.after(0.05)
            begun.append(len(site.begun) - before)
        assert len(site.begun) == 6
        assert max(begun) == 1 and sum(begun[:20]) < 4, "0.1 s of work are followed by 0.3 s of rest"
        names = [name.partition(" ")[0] for name in site.begun[2:]]
        assert sorted(names[:2]) == ["heavy/a", "other/a"]
        await site.done()

    asyncio.run(work())


def test_calls_of_one_run_wait_for_each_other_without_a_turn() -> None:
    """Else two that wait would take both slots of their caller, and the one that works could not go on."""

    async def work() -> None:
        site, lock, ended = Site(), asyncio.Lock(), list[int]()

        async def call(number: int) -> None:
            async with site.turns.turn(HEAVY, Cost()), alone(lock):
                for _ in range(3):
                    site.turns.charge(HEAVY, BURST_SECONDS)
                    await give_way()
                ended.append(number)

        tasks = [asyncio.create_task(call(number)) for number in range(5)]
        while len(ended) < 5:
            await site.after(1.0)
        await asyncio.gather(*tasks)
        assert ended == sorted(ended)

    asyncio.run(work())


def test_a_call_that_is_given_up_while_it_waits_leaves_its_place() -> None:
    async def work() -> None:
        site = Site()
        held = [site.call(HEAVY, f"held {n}", 0.0) for n in range(2)]
        await site.after(0.0)
        lost = asyncio.create_task(site.turns.come_back(_turn_of(site.turns)))
        await site.after(0.0)
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        next_one = site.call(HEAVY, "next", 0.0)
        for end in (*held, next_one):
            end.set()
        await site.after(0.0)
        await site.done()
        assert site.begun == ["held 0", "held 1", "next"]

    asyncio.run(work())


def _turn_of(turns: Turns) -> Any:
    from pharoah_serving.turns import Turn

    return Turn(turns, HEAVY, Cost())


def test_the_time_of_steps_and_threads_is_charged_and_waiting_is_not() -> None:
    def burn(seconds: float) -> None:
        until_seconds = time.thread_time() + seconds
        while time.thread_time() < until_seconds:
            pass

    async def busy() -> None:
        burn(0.02)
        await asyncio.sleep(0.5)
        await in_thread(burn, 0.03)

    async def work() -> None:
        cost = Cost()
        with charging(cost):
            await meter(busy())
        assert 0.05 <= cost.take() < 0.5 and cost.take() == 0.0

    asyncio.run(work())


def test_rest_follows_each_part_of_long_work_over_the_budget() -> None:
    async def work() -> None:
        site, parts = Site(), list[float]()
        site.turns.charge(HEAVY, 9.0)

        async def call() -> None:
            cost = Cost()
            async with site.turns.turn(HEAVY, cost):
                for _ in range(5):
                    cost.add(0.1)
                    await give_way()
                    parts.append(site.time.now)

        task = asyncio.create_task(call())
        while not task.done():
            await site.after(0.01)
        await task
        pauses = [later - earlier for earlier, later in pairwise(parts)]
        assert all(0.3 <= pause < 0.35 for pause in pauses), "0.1 s of work are followed by 0.3 s of rest"

    asyncio.run(work())


def test_long_work_that_may_go_on_at_once_still_lets_others_have_the_loop() -> None:
    async def work() -> None:
        site, others = Site(), list[str]()
        async with site.turns.turn(HEAVY, Cost()):
            site.turns.charge(HEAVY, 9.0)
            asyncio.get_running_loop().call_soon(others.append, "another")
            await give_way()
            assert others == ["another"]

    asyncio.run(work())
