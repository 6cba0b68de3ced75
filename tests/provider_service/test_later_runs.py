"""Runs on a node whose incident was raised by an earlier run: what they raise, hear and can show."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pharoah_learning.release import Release
from pharoah_protocol.incident_states import CONFIRMED, QUIET
from pharoah_provider.domain import Run
from pharoah_provider.monitoring.incidents import MAX_IDLE_PAUSE_SECONDS, SUSPICION_SECONDS
from tests.harness.monitored import HEALTHY_SECONDS, MonitoredSite, monitored_site
from tests.harness.slow_node import RELEASE, SLOW, at_site, confirmed_run, heard


async def left_behind(site: MonitoredSite, **changes: Any) -> Run:
    """The next run on n1, whose incident of an earlier run is confirmed and open; it is calm so far."""
    site.monitor.unwatch((await confirmed_run(site)).run_id)
    site.in_use.add("n1")
    run = await site.join("n1", **changes)
    await site.feel(run, 1.0, seconds=40)
    assert await heard(site, run) == [], "only the earlier run has shown it, and its own steps are as fast as before"
    return run


def test_a_later_run_that_becomes_slow_raises_an_incident_of_its_own(tmp_path: Path) -> None:
    """The node was slow when it came, and becomes slower; what it hears is compared with what it came to."""

    async def work(site: MonitoredSite) -> None:
        run = await left_behind(site)
        site.seconds["n1"] = 1.5 * SLOW
        await site.feel(run, 1.6, seconds=20)
        assert await site.alerts() == [("n1", "confirmed"), ("n1", "confirmed")]
        (change,) = await heard(site, run)
        assert change.state is CONFIRMED and change.raised_by == run.run_id
        assert "1.50x" in change.evidence
        site.seconds["n1"] = SLOW
        await site.feel(run, 1.0, seconds=20)
        assert [one.state for one in await heard(site, run)] == ["confirmed", "cleared"]
        assert sorted(await site.alerts()) == [("n1", "cleared"), ("n1", "confirmed")], "the earlier one goes on"

    at_site(tmp_path, work)


def test_the_incident_of_a_later_run_ends_with_it_and_the_earlier_one_is_validated_again(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await left_behind(site)
        for seconds in (1.5 * SLOW, 2.25 * SLOW):
            site.seconds["n1"] = seconds
            await site.feel(run, 1.6, seconds=20)
            assert [change.state for change in await heard(site, run)] == [CONFIRMED]
            site.monitor.unwatch(run.run_id)
            run = await site.join("n1")
            await site.feel(run, 1.0, seconds=40)
        assert sorted(state for _, state in await site.alerts()) == ["cleared", "cleared", "confirmed"]
        site.monitor.unwatch(run.run_id)
        site.in_use.clear()
        site.seconds["n1"] = HEALTHY_SECONDS
        for _ in range(80):
            await site.passes(50.0)
        assert {state for _, state in await site.alerts()} == {"cleared"}

    at_site(tmp_path, work)


def test_consecutive_runs_of_two_organisations_do_not_establish_that_a_node_is_slow(tmp_path: Path) -> None:
    """Each has compared with something else: with the node as it was when that run came."""

    async def work(site: MonitoredSite) -> None:
        run = await left_behind(site, tenant="rival")
        site.seconds["n1"] = 1.5 * SLOW
        await site.feel(run, 1.6, seconds=20)
        assert [change.established for change in await heard(site, run)] == [False]
        assert site.fleet.state("n1").state is QUIET

    at_site(tmp_path, work)


async def suspicion_left_behind(site: MonitoredSite) -> Run:
    """A run on n1, where an earlier run without consent has left a suspicion; it has become slow as well."""
    first = await site.join("n1", beside_job=False)
    await site.feel(first, 1.0, seconds=10)
    await site.feel(first, 1.6, seconds=10)
    site.monitor.unwatch(first.run_id)
    site.in_use.add("n1")
    second = await site.join("n1", tenant="rival")
    await site.feel(second, 1.0, seconds=40)
    site.seconds["n1"] = SLOW
    await site.feel(second, 1.6, seconds=20)
    assert await site.alerts() == [("n1", "suspected"), ("n1", "confirmed")]
    (change,) = await heard(site, second)
    assert change.state is CONFIRMED and change.raised_by == second.run_id
    return second


def test_a_later_run_does_not_end_the_suspicion_of_an_earlier_one(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await suspicion_left_behind(site)
        site.seconds["n1"] = HEALTHY_SECONDS
        await site.feel(run, 1.0, seconds=20)
        assert await site.alerts() == [("n1", "suspected"), ("n1", "cleared")]
        site.monitor.unwatch(run.run_id)
        site.in_use.clear()
        for _ in range(20):
            await site.passes(60.0)
        assert await site.alerts() == [("n1", "dismissed"), ("n1", "cleared")], "the idle node was validated"

    at_site(tmp_path, work)


def test_when_both_runs_are_over_the_confirmed_incident_goes_on(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        site.monitor.unwatch((await suspicion_left_behind(site)).run_id)
        await site.passes(1.0)
        assert await site.alerts() == [("n1", "dismissed"), ("n1", "confirmed")]
        site.in_use.clear()
        for _ in range(20):
            await site.passes(60.0)
        assert site.fleet.state("n1").state is CONFIRMED, "the idle node has shown it as well"

    at_site(tmp_path, work)


def test_suspicions_of_runs_that_come_and_go_do_not_keep_a_suspicion_open(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        before = site.time.now
        while site.time.now < before + SUSPICION_SECONDS + 3600:
            run = await site.join("n1", beside_job=False)
            await site.feel(run, 1.0, seconds=5)
            await site.feel(run, 1.6, seconds=5)
            site.monitor.unwatch(run.run_id)
            await site.passes(3600.0)
        states = [state for _, state in await site.alerts()]
        assert states.count("suspected") == 1 and states[0] == "dismissed"

    at_site(tmp_path, work, Release(1))


def test_what_was_measured_beside_a_later_run_is_forgotten_when_the_earlier_incident_ends(tmp_path: Path) -> None:
    """Its level was that of a slow node, and would hide that the node becomes slow again."""

    async def work(site: MonitoredSite) -> None:
        run = await left_behind(site)
        site.seconds["n1"] = HEALTHY_SECONDS
        for _ in range(int(3 * MAX_IDLE_PAUSE_SECONDS / 50)):
            await site.passes(50.0)
            await site.feel(run, 1.0)
        assert await site.alerts() == [("n1", "cleared")]
        await site.feel(run, 1.0, seconds=40)
        site.seconds["n1"] = SLOW
        await site.feel(run, 1.6, seconds=20)
        assert [change.state for change in await heard(site, run)] == [CONFIRMED]

    at_site(tmp_path, work)


def test_a_run_that_was_there_before_an_incident_can_show_that_it_is_over(tmp_path: Path) -> None:
    """No campaign has measured the node; the run has, before it became slow."""

    async def work(site: MonitoredSite) -> None:
        first, second = await site.join("n1"), await site.join("n1", tenant="rival")
        for _ in range(40):
            await site.passes(1.0)
            await site.feel_now(first, 1.0)
            await site.feel_now(second, 1.0)
        site.seconds["n1"] = SLOW
        for _ in range(10):
            await site.passes(1.0)
            await site.feel_now(first, 1.6)
            await site.feel_now(second, 1.0)
        assert await site.alerts() == [("n1", "confirmed")]
        site.monitor.unwatch(first.run_id)
        site.seconds["n1"] = HEALTHY_SECONDS
        for _ in range(int(3 * MAX_IDLE_PAUSE_SECONDS / 50)):
            await site.passes(50.0)
            await site.feel(second, 1.0)
        assert await site.alerts() == [("n1", "cleared")]

    at_site(tmp_path, work, Release(1))


def test_an_incident_that_was_set_aside_is_the_same_after_a_restart_of_the_provider(tmp_path: Path) -> None:
    async def inside() -> None:
        async with monitored_site(tmp_path, RELEASE) as site:
            await site.add_node("n1", cpu=1)
            run = await left_behind(site)
            site.seconds["n1"] = 1.5 * SLOW
            await site.feel(run, 1.6, seconds=20)
        async with monitored_site(tmp_path, RELEASE, site.time) as again:
            await again.add_node("n1", cpu=1)
            again.seconds["n1"] = SLOW
            again.in_use.add("n1")
            again.continue_after(site)
            await again.feel(run, 1.0, seconds=20)
            assert sorted(await again.alerts()) == [("n1", "cleared"), ("n1", "confirmed")]
            assert [change.state for change in await heard(again, run)] == ["confirmed", "cleared"]

    asyncio.run(inside())
