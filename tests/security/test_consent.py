"""Micro-benchmarks need everybody's consent: the attacks of a tenant that has others measured, in short."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from evaluation.hardening.consent import largest_share
from pharoah_learning.release import BenchmarkBaseline, Release
from pharoah_protocol.incident_states import CONFIRMED, QUIET
from pharoah_protocol.reports import ReportedLevels
from pharoah_protocol.vocabulary import Attribution, EndState
from pharoah_provider.campaigns.book import Campaigns
from pharoah_provider.contexts import Contexts
from pharoah_provider.domain import NOT_IDLE, Node, Run
from pharoah_provider.fleet import Connection, OrderKind
from pharoah_provider.monitoring.budgets import SHARE
from pharoah_provider.monitoring.consent import (
    OLDEST_TICKET_SECONDS,
    SILENCE_SECONDS,
    Permission,
    Presence,
    Refusal,
    permission,
)
from pharoah_provider.monitoring.orders import OCCUPIED_SECONDS, SHARED_SECONDS
from pharoah_provider.monitoring.run_budgets import JoinBudgets
from pharoah_provider.monitoring.watched_runs import LOST_SECONDS
from pharoah_provider.services import readers
from pharoah_provider.services.runs import RunsServicer
from pharoah_serving.clock import Clock
from pharoah_serving.errors import NotReady
from pharoah_serving.quotas import Quotas
from pharoah_serving.reading_processes import ReadingProcesses
from tests.harness.listings import listed
from tests.harness.monitored import HEALTHY_SECONDS, HandClock, MonitoredSite, monitored_site

SLOW = 3 * HEALTHY_SECONDS
SETTLE_SECONDS = 20.0
HOSTS = {"n1": ("host A", 1), "n4": ("host A", 1), "n2": ("host B", 2), "n3": ("host B", 2), "n5": ("host B", 3)}
"""Node to host and core. The attacker is on n2, and n1 is its peer."""
RELEASE = Release(
    1,
    baselines=tuple(
        BenchmarkBaseline(node, benchmark, beside_job, HEALTHY_SECONDS)
        for node in HOSTS
        for benchmark in ("gemm", "memory")
        for beside_job in (True, False)
    ),
)
N2 = Node("n2", bytes(32), "boot", ("device=cpu",), ("device=cpu",), (2,), host="host B")
GUEST = replace(N2, node="n3")
NEIGHBOUR = replace(N2, node="n5", cpus=(3,))
ELSEWHERE = replace(N2, node="n1", host="host A")
KNOWN = (N2, GUEST, NEIGHBOUR, ELSEWHERE)
AGREED = Run(b"r" * 16, "acme/one", "n2", attempt=1, ranks=1, beside_job=True, limit_seconds=5.0)
NOW = 10_000.0


def at_site(folder: Path, work: Callable[[MonitoredSite], Awaitable[None]], **options: Any) -> None:
    async def inside() -> None:
        async with monitored_site(folder, RELEASE, **options) as site:
            await add_nodes(site)
            await work(site)

    asyncio.run(inside())


async def add_nodes(site: MonitoredSite) -> None:
    for name, (host, core) in HOSTS.items():
        await site.add_node(name, core, host=host)


async def attack(site: MonitoredSite, run: Run, seconds: int, *others: Run) -> None:
    """Report three times the baseline once a second, while others report that all is well."""
    for _ in range(seconds):
        await site.passes(1.0)
        for one in (run, *others):
            await site.report(one, [ReportedLevels(12 if one is run else 0)])
        await site.validated()


# who must agree


def present(**changes: Any) -> Presence:
    return replace(Presence(AGREED, began_at=0.0, heard_at=NOW - 1, ticket_at=NOW - 60), **changes)


@pytest.mark.parametrize(
    ("one", "answer"),
    [
        (present(run=replace(AGREED, beside_job=False)), Refusal.NOT_AGREED),
        (present(heard_at=NOW - SILENCE_SECONDS), Refusal.SILENT),
        (present(heard_at=-inf), Refusal.SILENT),
        (present(ticket_at=NOW - OLDEST_TICKET_SECONDS), Refusal.TICKET_TOO_OLD),
        (present(began_at=NOW - SETTLE_SECONDS + 1), Refusal.NOT_SETTLED),
        (present(lost=True), Refusal.NOT_SEEN_GONE),
    ],
    ids=lambda value: value.name if isinstance(value, Refusal) else "",
)
@pytest.mark.parametrize("where", ["n2", "n3", "n5"])
def test_every_run_on_the_host_is_asked_whichever_node_it_is_on(one: Presence, answer: Refusal, where: str) -> None:
    there = replace(one, run=replace(one.run, node=where))
    willing = present(run=replace(AGREED, run_id=b"w" * 16))
    for all_runs in ([willing, there], [there, willing]):
        assert permission(N2, KNOWN, all_runs, NOW, SETTLE_SECONDS) is answer
    elsewhere = replace(one, run=replace(one.run, node="n1"))
    assert isinstance(permission(N2, KNOWN, [willing, elsewhere], NOW, SETTLE_SECONDS), Permission)


def test_the_shortest_limit_on_the_host_holds_and_unused_nodes_must_be_seen_empty() -> None:
    short = present(run=replace(AGREED, node="n5", limit_seconds=0.5))
    answer = permission(N2, KNOWN, [present(), short], NOW, SETTLE_SECONDS)
    assert answer == Permission("n2", beside_job=True, limit_seconds=0.5, look_at=())
    assert permission(N2, KNOWN, [], NOW, SETTLE_SECONDS) == Permission("n2", False, inf, ("n2", "n3", "n5"))
    beside_guest = permission(N2, KNOWN, [present(run=replace(AGREED, node="n3"))], NOW, SETTLE_SECONDS)
    assert beside_guest == Permission("n2", beside_job=True, limit_seconds=5.0, look_at=("n5",))


# orders beside those who did not agree


@pytest.mark.parametrize("node", ["n1", "n4", "n2", "n3", "n5"])
@pytest.mark.parametrize("first", [True, False])
def test_nothing_is_measured_on_the_host_of_a_run_that_has_not_agreed(tmp_path: Path, node: str, first: bool) -> None:
    async def work(site: MonitoredSite) -> None:
        site.seconds["n2"] = SLOW  # the attacker takes its own core, so that a peer is wanted
        others = [] if first else [await site.join(node, tenant="willing")]
        victim = await site.join(node, tenant="victim", beside_job=False)
        await attack(site, await site.join("n2", tenant="attacker"), 25, victim, *others)
        hosts = {HOSTS[order.node][0] for order in site.ordered}
        assert HOSTS[node][0] not in hosts
        assert bool(hosts) == (HOSTS[node][0] != "host B"), "the attacker's own host is measured where it may be"

    at_site(tmp_path, work)


def test_a_run_whose_sidecar_is_dead_keeps_its_host_to_itself_until_it_is_seen_gone(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        site.seconds["n2"] = SLOW
        victim = await site.join("n1", tenant="victim")  # it agrees, reports once, and then trains with a dead sidecar
        site.in_use |= {"n1", "n4"}
        attacker = await site.join("n2", tenant="attacker")
        await attack(site, attacker, int(SILENCE_SECONDS) + 5)
        heard_until = len([order for order in site.ordered if order.node in ("n1", "n4")])
        await attack(site, attacker, int(LOST_SECONDS))
        assert await site.storage.runs.end_state(victim) is EndState.LOST
        assert len([order for order in site.ordered if order.node in ("n1", "n4")]) == heard_until
        assert [run.run_id for run in await site.storage.runs.list_lost_runs()] == [victim.run_id]
        site.in_use.clear()
        await attack(site, attacker, int(OCCUPIED_SECONDS) + 5)
        assert await site.storage.runs.list_lost_runs() == []

    at_site(tmp_path, work)


def test_a_lost_run_that_reports_its_end_leaves_its_host_to_others(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        site.in_use.add("n1")
        lost = await site.join("n1", tenant="victim")
        await site.passes(LOST_SECONDS)
        assert site.monitor._orders.permission("n1") is Refusal.NOT_SEEN_GONE
        joins = JoinBudgets(site.monitor.watches, site.time.clock)
        reading = ReadingProcesses(readers.TABLE)
        runs = RunsServicer(
            site.storage, site.monitor, site.intake, joins, Quotas(), site.time.clock, Contexts(), reading
        )
        await runs._end(lost, EndState.PREEMPTED, Attribution.UNKNOWN, None)
        assert isinstance(site.monitor._orders.permission("n1"), Permission)
        assert await site.storage.runs.list_lost_runs() == []
        (row,) = await listed(site.storage, "runs")
        assert row["end_state"] == "preempted" and row["ended_at"] == site.time.now

    at_site(tmp_path, work)


def test_silence_is_not_forgotten_by_a_restart_of_the_provider(tmp_path: Path) -> None:
    time = HandClock()

    async def inside() -> None:
        async with monitored_site(tmp_path, RELEASE, time) as site:
            await add_nodes(site)
            site.in_use.add("n1")
            lost, silent = await site.join("n1", tenant="victim"), await site.join("n5", tenant="other")
            await attack(site, silent, int(LOST_SECONDS) + 1)
            assert await site.storage.runs.end_state(lost) is EndState.LOST
        async with monitored_site(tmp_path, RELEASE, time) as again:
            await add_nodes(again)
            assert again.monitor._orders.permission("n1") is Refusal.NOT_SEEN_GONE
            assert again.monitor._orders.permission("n2") is Refusal.SILENT

    asyncio.run(inside())


def test_nothing_is_measured_beside_a_run_while_its_agent_sees_a_stranger_there(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        site.seconds["n2"] = SLOW
        site.refusals["n2"] = NOT_IDLE
        run = await site.join("n2", tenant="attacker")
        await attack(site, run, 25)
        assert site.ordered == []
        site.refusals.clear()
        await attack(site, run, 25)
        assert site.ordered == [], "the node is left alone for a while"
        await attack(site, run, int(SHARED_SECONDS))
        assert {order.node for order in site.ordered} >= {"n2"}

    at_site(tmp_path, work)


@pytest.mark.parametrize("used", [{"n1"}, {"n4"}])
def test_no_peer_is_measured_where_its_agents_see_somebody(tmp_path: Path, used: set[str]) -> None:
    async def work(site: MonitoredSite) -> None:
        site.seconds["n2"], site.in_use = SLOW, used
        await attack(site, await site.join("n2", tenant="attacker"), 25)
        assert {HOSTS[order.node][0] for order in site.ordered} == {"host B"}

    at_site(tmp_path, work)


def test_an_idle_node_is_not_measured_while_somebody_uses_it_without_pharoah(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        site.in_use.add("n2")
        for _ in range(4):
            run = await site.join("n2", tenant="attacker", beside_job=False)
            await attack(site, run, 6)
            site.monitor.unwatch(run.run_id)
            for _ in range(20):
                await site.passes(1.0)
        assert site.ordered == []
        states = [state for _, state in await site.alerts()]
        assert states == ["suspected", "dismissed", "dismissed", "dismissed"], "one of them waits for the idle node"

    at_site(tmp_path, work)


def test_no_validation_comes_before_the_runs_concerned_have_settled(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        began, run = site.time.now, await site.join("n2", tenant="attacker")
        await attack(site, run, int(SETTLE_SECONDS) + 5)
        assert min(order.began_at for order in site.ordered) - began >= SETTLE_SECONDS

    at_site(tmp_path, work, settle_seconds=SETTLE_SECONDS)


def test_an_order_that_goes_on_is_stopped_when_a_run_comes_to_the_host(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        node = site.fleet.node("n2")
        assert node is not None
        await site.disconnect("n2")
        connection: Connection = site.fleet.connect(node)  # an agent that works on the order for ever
        run = await site.join("n2", tenant="attacker")
        for _ in range(6):
            site.time.now += 1.0
            await site.report(run, [ReportedLevels(12)])
        ordered = await next_order(connection, OrderKind.PROBE)
        await site.join("n5", tenant="victim", beside_job=False)
        stopped = await next_order(connection, OrderKind.STOP)
        assert stopped.order_id == ordered.order_id
        await site.validated()
        site.fleet.disconnect(connection)

    async def next_order(connection: Connection, kind: OrderKind) -> Any:
        async with asyncio.timeout(10):
            while (order := await connection.orders.get()).kind is not kind:
                pass
        return order

    at_site(tmp_path, work)


def test_windows_during_our_own_orders_are_masked_on_the_whole_host(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        site.order_seconds, site.seconds["n2"] = 2.0, SLOW
        victims = [await site.join(node, tenant="victim") for node in ("n3", "n5")]
        await attack(site, await site.join("n2", tenant="attacker"), 4, *victims)
        assert site.ordered
        assert all(site.monitor.measures(node) for node in ("n2", "n3", "n5"))
        far = site.ordered[0].began_at
        assert site.fleet.was_probed("n3", far, far + 1) and not site.fleet.was_probed("n3", far - 9, far - 8)

    at_site(tmp_path, work)


def test_a_campaign_leaves_hosts_with_runs_alone(tmp_path: Path) -> None:
    plan = 'name = "all"\nrepeats = 1\n[[workload]]\nname = "mlp"\n'

    async def work(site: MonitoredSite) -> None:
        for node in ("n1", "n5"):
            await site.join(node, tenant="willing")
        with pytest.raises(NotReady, match="runs go on"):
            await Campaigns(site.storage, site.fleet, site.monitor.in_use, Clock()).plan(plan)

    at_site(tmp_path, work)


# time


@pytest.mark.parametrize("every", [6, 200])
def test_one_tenant_orders_one_percent_of_the_time_whatever_it_ends_and_joins(tmp_path: Path, every: int) -> None:
    time = HandClock()
    ordered = []

    async def inside() -> None:
        for part in range(2):
            async with monitored_site(tmp_path, RELEASE, time) as site:
                site.order_seconds, site.ordered = 2.5, ordered
                await add_nodes(site)
                for number in range(200 // every):
                    run = await site.join("n2", tenant=f"attacker/{part}{number}")
                    await attack(site, run, every)
                    await site.storage.runs.end_run(run, EndState.OK, time.now)
                    site.monitor.unwatch(run.run_id)

    asyncio.run(inside())
    assert ordered and largest_share(ordered, 600.0) <= SHARE


def test_a_node_that_is_slow_is_confirmed_without_a_pause(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        site.order_seconds = 2.5
        run = await site.join("n2")
        await site.feel(run, 1.0, seconds=60)
        site.seconds["n2"], began = SLOW, site.time.now
        while ("n2", "confirmed") not in await site.alerts():
            await attack(site, run, 1)
            assert site.time.now - began < 20

    at_site(tmp_path, work)


def test_a_run_that_takes_its_own_core_while_it_is_measured_convicts_its_node_for_itself_only(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n2", tenant="attacker")
        site.seconds["n2"] = SLOW
        await attack(site, run, 30)
        assert ("n2", "confirmed") in await site.alerts()
        assert site.fleet.state("n2").state is QUIET
        site.monitor.unwatch(run.run_id)
        site.seconds["n2"] = HEALTHY_SECONDS
        for _ in range(200):
            await site.passes(5.0)
        assert [state for _, state in await site.alerts()] == ["cleared"]
        assert CONFIRMED not in {state.state for state in site.states["n2"]}

    at_site(tmp_path, work)
