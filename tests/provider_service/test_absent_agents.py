"""An agent that vanishes under a run is an incident; a restart of the provider or a short absence is none."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pharoah_provider.monitoring.absent_agents import ABSENT_SECONDS, KEPT_SECONDS
from pharoah_provider.monitoring.watched_runs import LOST_SECONDS
from tests.harness.listings import listed
from tests.harness.monitored import MonitoredSite, monitored_site
from tests.provider_service.test_monitor import RELEASE, at_site, heard


async def kinds(site: MonitoredSite) -> list[tuple[str, str, str]]:
    """Node, kind and state of every incident."""
    return [(row["node"], row["kind"], row["state"]) for row in await listed(site.storage, "alerts")]


def test_an_agent_that_vanishes_under_a_run_is_an_incident_until_it_is_back(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1")
        await site.join("n2")
        await site.feel(run, 1.0, seconds=5)
        await site.disconnect("n1")
        await site.feel(run, 1.0, seconds=int(ABSENT_SECONDS) - 1)
        assert await kinds(site) == []
        await site.feel(run, 1.0, seconds=5)
        assert await kinds(site) == [("n1", "agent_lost", "confirmed")]
        assert await heard(site, run) == [], "no run can do anything about it"
        await site.add_node("n1", cpu=1)
        await site.feel(run, 1.0, seconds=5)
        assert await kinds(site) == [("n1", "agent_lost", "cleared")]
        changes = [row["state"] for row in await listed(site.storage, "incidents")]
        assert changes == ["confirmed", "cleared"], "each change fires once"

    at_site(tmp_path, work)


def test_an_agent_that_stays_connected_and_sends_nothing_is_an_incident_too(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1")
        site.mute.add("n1")
        await site.feel(run, 1.0, seconds=int(ABSENT_SECONDS) + 2)
        assert await kinds(site) == [("n1", "agent_lost", "confirmed")]
        site.mute.clear()
        await site.feel(run, 1.0, seconds=2)
        assert await kinds(site) == [("n1", "agent_lost", "cleared")]

    at_site(tmp_path, work)


def test_an_agent_that_vanishes_from_an_idle_node_is_none(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        await site.disconnect("n1")
        for _ in range(10):
            await site.passes(ABSENT_SECONDS)
        run = await site.join("n1")
        await site.feel(run, 1.0, seconds=int(ABSENT_SECONDS) - 1)
        assert await kinds(site) == [], "it was not missed before the run came"

    at_site(tmp_path, work)


def test_an_agent_that_is_away_again_and_again_for_a_short_time_is_none(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1")
        for _ in range(5):
            await site.disconnect("n1")
            await site.feel(run, 1.0, seconds=int(ABSENT_SECONDS) - 2)
            await site.add_node("n1", cpu=1)
            await site.feel(run, 1.0, seconds=1)
        assert await kinds(site) == []

    at_site(tmp_path, work)


def test_a_restart_of_the_provider_raises_none_and_goes_on_with_those_there_are(tmp_path: Path) -> None:
    async def inside() -> None:
        async with monitored_site(tmp_path, RELEASE) as site:
            await site.add_node("n1", cpu=1)
            await site.add_node("n2", cpu=2)
            run, other = await site.join("n1"), await site.join("n2")
            await site.disconnect("n1")
            for _ in range(int(ABSENT_SECONDS) + 2):
                await site.feel(run, 1.0)
                await site.feel(other, 1.0)
            assert await kinds(site) == [("n1", "agent_lost", "confirmed")]
        site.time.now += 10 * ABSENT_SECONDS  # the provider is away for longer than any agent may be
        async with monitored_site(tmp_path, RELEASE, site.time) as again:
            again.continue_after(site)
            await again.passes(1.0)
            await again.passes(ABSENT_SECONDS / 2)
            assert await kinds(again) == [("n1", "agent_lost", "confirmed")]
            for number, name in enumerate(("n1", "n2"), 1):
                await again.add_node(name, cpu=number)
            await again.passes(1.0)
            await again.passes(ABSENT_SECONDS)
            assert await kinds(again) == [("n1", "agent_lost", "cleared")]

    asyncio.run(inside())


def test_the_incident_of_a_node_that_never_comes_back_ends_after_a_day(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1")
        await site.disconnect("n1")
        await site.feel(run, 1.0, seconds=int(ABSENT_SECONDS) + 2)
        await site.passes(LOST_SECONDS + 1)
        assert ("n1", "agent_lost", "confirmed") in await kinds(site) and not site.monitor.watches(run)
        await site.passes(KEPT_SECONDS)
        assert ("n1", "agent_lost", "cleared") in await kinds(site)

    at_site(tmp_path, work)
