"""The monitor: what one slow rank, the end of a run, an idle node and a long silence do to the incident of a node."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pharoah_learning.release import Release
from pharoah_protocol.incident_states import CLEARED, CONFIRMED, QUIET
from pharoah_protocol.vocabulary import EndState
from pharoah_provider.domain import BESIDE_JOB, Report, Run, Transition
from pharoah_provider.monitoring import monitor
from pharoah_provider.monitoring.incidents import MAX_IDLE_PAUSE_SECONDS, SUSPICION_SECONDS
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.monitoring.watched_runs import LOST_SECONDS, WatchedRuns
from tests.harness.clock import SimulatedClock
from tests.harness.listings import listed
from tests.harness.monitored import HEALTHY_SECONDS, MonitoredSite, monitored_site
from tests.harness.slow_node import RELEASE, SLOW, at_site, confirmed_run, established_incident, heard
from tests.harness.until import until


@pytest.mark.parametrize("ranks", [4, 8])
def test_one_slow_rank_is_confirmed_and_stays_so_until_it_is_as_fast_as_before(tmp_path: Path, ranks: int) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", ranks)
        await site.feel(run, *[1.0] * ranks, seconds=10)
        site.seconds["n1"] = SLOW
        odd = [1.6 if rank == ranks - 2 else 1.0 for rank in range(ranks)]
        await site.feel(run, *odd, seconds=10)
        assert await site.alerts() == [("n1", "confirmed")]
        await site.feel(run, *odd, seconds=30)
        assert await site.alerts() == [("n1", "confirmed")]
        await site.feel(run, *[1.0] * ranks, seconds=10)
        assert await site.alerts() == [("n1", "cleared")]
        assert [change.state for change in await heard(site, run)] == ["confirmed", "cleared"]

    at_site(tmp_path, work)


def test_a_confirmed_incident_outlives_its_run_and_the_next_run_hears_of_it_at_once(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        await established_incident(site)
        assert await site.alerts() == [("n1", "confirmed")]
        second = await site.join("n1", tenant="rival")
        (change,) = await heard(site, second)
        assert change.state is CONFIRMED

    at_site(tmp_path, work)


def test_what_other_tenants_hear_says_nothing_about_the_job_that_raised_it(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        first = await confirmed_run(site)
        (own,) = await heard(site, first)
        site.monitor.unwatch(first.run_id)
        for _ in range(6):
            await site.passes(10.0)
        (others,) = await heard(site, await site.join("n1", tenant="rival"))
        assert "step time 1.5" in own.what and BESIDE_JOB in own.evidence and own.step_ratio > 1.5
        assert others.step_ratio == 1.0 and "step time" not in others.what
        for text in (others.what, others.evidence, site.states["n1"][-1].evidence):
            assert "job" not in text and "1.5" not in text
        assert "memory 3.00x" in others.evidence

    at_site(tmp_path, work)


def test_a_later_run_cannot_clear_an_incident_by_being_clean(tmp_path: Path) -> None:
    """It took its own baseline on the slow node."""

    async def work(site: MonitoredSite) -> None:
        await established_incident(site)
        second = await site.join("n1")
        await site.feel(second, 1.0, seconds=20)
        assert await site.alerts() == [("n1", "confirmed")]
        site.seconds["n1"] = HEALTHY_SECONDS  # repaired while the second run goes on
        for _ in range(int(3 * MAX_IDLE_PAUSE_SECONDS / 50)):
            await site.passes(50.0)
            await site.feel(second, 1.0)
        assert await site.alerts() == [("n1", "cleared")]
        assert [change.state for change in await heard(site, second)] == ["confirmed", "cleared"]

    at_site(tmp_path, work)


def test_an_idle_node_is_validated_and_its_agent_hears_of_every_change(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        site.monitor.unwatch((await confirmed_run(site)).run_id)
        for _ in range(30):
            await site.passes(20.0)
        assert await site.alerts() == [("n1", "confirmed")]
        assert site.fleet.state("n1").state is CONFIRMED
        site.seconds["n1"] = HEALTHY_SECONDS
        for _ in range(40):
            await site.passes(50.0)
        assert await site.alerts() == [("n1", "cleared")]
        assert site.fleet.state("n1").state is QUIET
        assert [state.state for state in site.states["n1"]] == ["quiet", "confirmed", "quiet"]
        assert [state.state for state in site.states["n2"]] == ["quiet"]

    at_site(tmp_path, work)


@pytest.mark.parametrize(("seconds", "state"), [(SLOW, "confirmed"), (HEALTHY_SECONDS, "dismissed")])
def test_a_suspicion_that_its_run_left_behind_is_validated_on_the_idle_node(
    tmp_path: Path, seconds: float, state: str
) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", beside_job=False)
        await site.feel(run, 1.6, seconds=10)
        site.monitor.unwatch(run.run_id)
        assert await site.alerts() == [("n1", "suspected")]
        site.seconds["n1"] = seconds
        for _ in range(20):
            await site.passes(10.0)
        assert await site.alerts() == [("n1", state)]

    at_site(tmp_path, work)


@pytest.mark.parametrize(("seconds", "state"), [(SLOW, "confirmed"), (HEALTHY_SECONDS, "dismissed")])
def test_a_validation_that_a_tenant_asks_for_is_made_beside_its_run(tmp_path: Path, seconds: float, state: str) -> None:
    """Its steps look healthy to the provider: only the tenant sees what it sees."""

    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1")
        await site.feel(run, 1.0, seconds=10)
        site.seconds["n1"] = seconds
        await site.monitor.ask(run)
        await site.feel(run, 1.0, seconds=30)
        assert (await site.alerts())[0] == ("n1", state)

    at_site(tmp_path, work)


@pytest.mark.parametrize(("seconds", "state"), [(SLOW, "confirmed"), (HEALTHY_SECONDS, "dismissed")])
def test_without_consent_a_validation_that_is_asked_for_waits_for_the_idle_node(
    tmp_path: Path, seconds: float, state: str
) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", beside_job=False)
        await site.feel(run, 1.0, seconds=5)
        await site.monitor.ask(run)
        site.seconds["n1"] = seconds
        await site.feel(run, 1.0, seconds=30)
        assert await site.alerts() == [("n1", "suspected")]
        assert not site.ordered
        site.monitor.unwatch(run.run_id)
        for _ in range(20):
            await site.passes(10.0)
        assert await site.alerts() == [("n1", state)]

    at_site(tmp_path, work)


def test_a_suspicion_that_nothing_can_validate_is_dismissed_after_a_day(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", beside_job=False)
        await site.feel(run, 1.6, seconds=10)
        site.monitor.unwatch(run.run_id)
        await site.passes(0.9 * SUSPICION_SECONDS)
        assert await site.alerts() == [("n1", "suspected")]
        await site.passes(0.2 * SUSPICION_SECONDS)
        assert await site.alerts() == [("n1", "dismissed")]

    at_site(tmp_path, work, Release(1))


def test_no_idle_node_is_measured_while_a_run_that_has_not_agreed_is_there(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        site.monitor.unwatch((await confirmed_run(site)).run_id)
        before = len(await listed(site.storage, "probes"))
        second = await site.join("n1", beside_job=False)
        await site.feel(second, 1.0, seconds=20)
        await site.passes(50.0)
        await site.feel(second, 1.0, seconds=20)
        assert len(await listed(site.storage, "probes")) == before

    at_site(tmp_path, work)


def test_a_run_that_was_cut_off_hears_that_the_incident_of_its_node_is_over(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        await established_incident(site)
        run = await site.join("n1")
        (confirmed,) = await heard(site, run)
        site.seconds["n1"] = HEALTHY_SECONDS
        for _ in range(200):
            await site.passes(10.0)
        assert not site.monitor.watches(run) and await site.alerts() == [("n1", "cleared")]
        again = await site.join("n1", run_id=run.run_id)
        seen = [(change.incident_id, change.state) for change in await heard(site, again)]
        assert seen == [(confirmed.incident_id, CLEARED)]

    at_site(tmp_path, work)


def test_a_validation_that_a_tenant_asks_for_is_made_after_a_restart_of_the_provider(tmp_path: Path) -> None:
    async def inside() -> None:
        async with monitored_site(tmp_path, RELEASE) as site:
            await site.add_node("n1", cpu=1)
            run = await site.join("n1")
            await site.monitor.ask(run)
        async with monitored_site(tmp_path, RELEASE, site.time) as again:
            await again.add_node("n1", cpu=1)
            again.seconds["n1"] = SLOW
            again.continue_after(site)
            await again.feel(run, 1.0, seconds=150)
            assert again.ordered, "its steps look healthy, and its question stands"
            assert (await again.alerts())[0] == ("n1", "confirmed")

    asyncio.run(inside())


def test_a_confirmed_incident_is_the_same_after_a_restart_of_the_provider(tmp_path: Path) -> None:
    async def inside() -> None:
        async with monitored_site(tmp_path, RELEASE) as site:
            await site.add_node("n1", cpu=1)
            run = await confirmed_run(site)
            (before,) = await heard(site, run)
        async with monitored_site(tmp_path, RELEASE, site.time) as again:
            await again.add_node("n1", cpu=1)
            again.seconds["n1"] = SLOW
            assert await heard(again, run) == [before]
            assert again.states["n1"][0].state is QUIET, "only this run has shown it so far"
            again._next = site._next
            await again.feel(run, 1.6, seconds=5)
            await again.feel(run, 1.0, seconds=10)
            assert [change.state for change in await heard(again, run)] == ["confirmed", "cleared"]

    asyncio.run(inside())


def test_a_run_that_is_silent_for_too_long_is_lost_and_joins_again_as_a_new_attempt(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1")
        await site.feel(run, 1.0, seconds=5)
        await site.passes(LOST_SECONDS - 2)
        assert site.monitor.watches(run)
        listening = asyncio.create_task(all_of(site, run))
        await site.passes(3)
        assert not site.monitor.watches(run)
        assert await asyncio.wait_for(listening, 5) == []
        assert await site.storage.runs.end_state(run) is EndState.LOST
        assert await site.alerts() == [], "the agent is there: nothing speaks against the node"
        again = await site.join("n1", run_id=run.run_id)
        assert again.attempt == 2 and site.monitor.watches(again)
        ends = [row["end_state"] for row in await listed(site.storage, "runs")]
        assert ends == ["lost", None]

    async def all_of(site: MonitoredSite, run: Run) -> list[Transition]:
        return [change async for change in site.monitor.alerts(run.run_id)]

    at_site(tmp_path, work)


def test_a_node_that_vanishes_with_its_run_is_suspected_and_validated_when_it_is_back(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1")
        await site.feel(run, 1.0, seconds=5)
        await site.disconnect("n1")
        await site.passes(LOST_SECONDS + 1)
        (row,) = await listed(site.storage, "alerts")
        assert (row["node"], row["kind"], row["state"]) == ("n1", "lost", "suspected")
        assert "nothing was heard of the agent" in row["evidence"]
        await site.passes(60.0)
        await site.add_node("n1", cpu=1)
        for _ in range(20):
            await site.passes(10.0)
        assert await site.alerts() == [("n1", "dismissed")]

    at_site(tmp_path, work)


def test_a_node_whose_machine_loses_power_is_suspected_although_its_connection_is_open(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1")
        await site.feel(run, 1.0, seconds=5)
        site.mute.add("n1")
        await site.passes(LOST_SECONDS + 1)
        rows = await listed(site.storage, "alerts")
        assert ("n1", "lost", "suspected") in [(row["node"], row["kind"], row["state"]) for row in rows]

    at_site(tmp_path, work)


def test_an_incident_began_before_now_by_the_clock_of_the_provider(tmp_path: Path) -> None:
    """The clock of the node is two hours ahead."""

    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", beside_job=False)
        for second in range(10):
            await site.passes(1.0)
            ahead = Report(second, 0, site.time.now + 7200.0, 1.0, 1.6, 1.0)
            await site.monitor.react(run, [ahead], [False], site.monitor.score(run, [ahead]).risks)
        (row,) = await listed(site.storage, "alerts")
        assert row["state"] == "suspected" and row["since"] <= site.time.now

    at_site(tmp_path, work)


def test_seconds_that_a_sidecar_dropped_are_counted_once(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1")
        for dropped in (0, 5, 5, 7, 7):
            await site.passes(1.0)
            await site.intake.take(run, [], dropped)
        assert dropped_seconds(site) == 7
        await site.intake.take(run, [], 2**60)
        assert dropped_seconds(site) < 2**20, "no tenant can make the metric useless"

    def dropped_seconds(site: MonitoredSite) -> float:
        name = "pharoah_ingest_dropped_total"
        return site.metrics.registry.get_sample_value(name, {"reason": "dropped_by_sidecar"}) or 0.0

    at_site(tmp_path, work)


def test_reports_are_masked_where_an_order_ran_and_nowhere_else(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run, at = await site.join("n1"), site.time.now
        site.order_seconds = 3.0
        await site.fleet.probe("n1", ["gemm"], 1, beside_job=False, limit_seconds=3.0)
        reports = [Report(second, 0, at + second + 1, 1.0, 1.0, 1.0) for second in range(-2, 6)]
        expected = [False, False, True, True, True, False, False, False]
        assert site.monitor.score(run, reports).masked == expected
        assert site.monitor.score(run, reports[:2] + reports[-2:]).masked == [False] * 4

    at_site(tmp_path, work)


def test_lost_runs_are_known_by_their_node_until_it_was_seen_empty() -> None:
    runs = WatchedRuns(SimulatedClock())
    first, second, other = (Run(name, "acme", node, 1, 1, False, 0.0) for name, node in
                            ((b"1", "n1"), (b"2", "n1"), (b"3", "n2")))  # fmt: skip
    for run in (first, second, other):
        runs.add_lost(run)
    runs.forget_lost(b"2")
    assert [one.run for one in runs.present(["n1", "n3"])] == [first] and runs.list_lost_nodes() == ["n1", "n2"]
    runs.note_empty("n1")
    runs.forget_lost(b"1")
    assert runs.present(["n1"]) == [] and runs.list_lost_nodes() == ["n2"]


def test_the_watch_goes_on_after_an_error_that_nobody_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = [0]

    async def tick(_: Monitor) -> None:
        ticks[0] += 1
        if ticks[0] == 1:
            raise ZeroDivisionError

    async def inside() -> None:
        watching = asyncio.create_task(Monitor.keep_watch(Monitor.__new__(Monitor)))
        try:
            await until(lambda: ticks[0] > 2, "ticks after the error")
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    monkeypatch.setattr(Monitor, "tick", tick)
    monkeypatch.setattr(monitor, "TICK_SECONDS", 0.0)
    asyncio.run(inside())
