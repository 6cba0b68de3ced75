"""Checks of idle nodes: what they find, whom they leave alone, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any

import pytest

from pharoah_benchmarks.micro import MICRO_BENCHMARKS, suitable
from pharoah_learning.check_selection import Candidate
from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.fleet_comparison import MIN_PAST_RUNS
from pharoah_protocol.answer_digests import answer_digest
from pharoah_protocol.vocabulary import DeviceKind, Resource
from pharoah_provider.domain import CheckResult, Transition
from pharoah_provider.monitoring import idle_checks
from pharoah_provider.monitoring.follow_ups import FollowUps
from pharoah_provider.monitoring.incident_book import IncidentBook
from pharoah_serving.errors import StoreError
from tests.harness.listings import listed
from tests.harness.monitored import HandClock, MonitoredSite, monitored_site

PAUSE = 3600.0


@pytest.fixture
def only_gemm(monkeypatch: pytest.MonkeyPatch) -> None:
    """One micro-benchmark, so that a node soon has a past in it."""
    monkeypatch.setattr(idle_checks, "suitable", lambda *_, **__: (MICRO_BENCHMARKS["gemm"],))


def at_site(
    folder: Path, work: Callable[[MonitoredSite], Awaitable[None]], time: HandClock | None = None, pause: float = PAUSE
) -> None:
    async def inside() -> None:
        async with monitored_site(folder, time=time, check_pause_seconds=pause) as site:
            for number in (1, 2):
                await site.add_node(f"n{number}", number)
            await work(site)

    asyncio.run(inside())


async def hours(site: MonitoredSite, count: int) -> None:
    """Hours pass; the monitor looks around several times in each."""
    for _ in range(count):
        for _ in range(4):
            await site.passes(PAUSE / 4)


async def checks(site: MonitoredSite) -> list[dict[str, Any]]:
    return await listed(site.storage, "idle-checks")


async def incidents(site: MonitoredSite) -> list[tuple[str, str, str]]:
    return [(row["node"], row["kind"], row["state"]) for row in await listed(site.storage, "alerts")]


def test_idle_nodes_are_checked_once_in_each_pause_and_by_different_benchmarks(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        await hours(site, 9)
        rows = await checks(site)
        for node in ("n1", "n2"):
            own = [row for row in rows if row["node"] == node]
            assert 7 <= len(own) <= 9
            assert len({row["benchmark"] for row in own}) >= 6
            assert all(0 < row["propensity"] <= 1 for row in own)
        assert await incidents(site) == []
        assert {row["purpose"] for row in await listed(site.storage, "probes")} == {"check"}

    at_site(tmp_path, work)


def test_two_idle_nodes_measure_their_network_and_the_slow_one_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three can be reached; a pair is as slow as the slower of its nodes."""
    monkeypatch.setattr(idle_checks, "suitable", lambda *_, **__: (MICRO_BENCHMARKS["all_reduce"],))

    async def inside() -> None:
        async with monitored_site(tmp_path, check_pause_seconds=PAUSE) as site:
            for number in (1, 2, 3):
                await site.add_node(f"n{number}", number, peer_address=f"n{number}:7300" if number < 3 else "")
            await site.add_node("alone", 4, "device=other")
            await hours(site, 8)
            assert {row["node"] for row in await checks(site)} == {"n1", "n2", "n3"}
            assert site.together and all(len(set(pair)) == 2 for pair in site.together)
            assert await incidents(site) == []
            site.seconds["n2"] *= 1.2
            await hours(site, 6)
            assert await incidents(site) == [("n2", "below_fleet", "confirmed")]
            row = (await listed(site.storage, "alerts"))[0]
            assert row["evidence"].startswith("all_reduce: ") and row["short_resource"] == "network"

    asyncio.run(inside())


def test_nodes_of_one_host_and_nodes_that_nobody_reaches_do_not_measure_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_checks, "suitable", lambda *_, **__: (MICRO_BENCHMARKS["all_reduce"],))

    async def inside() -> None:
        async with monitored_site(tmp_path, check_pause_seconds=PAUSE) as site:
            await site.add_node("n1", 1, host="h", peer_address="h:1")
            await site.add_node("n2", 2, host="h", peer_address="h:2")
            await site.add_node("n3", 3, "device=other")
            await site.add_node("n4", 4, "device=other")
            await hours(site, 3)
            assert await checks(site) == [] and site.together == []

    asyncio.run(inside())


def measurable() -> set[Resource]:
    """What can be measured of a node with a CPU that is alone."""
    on_cpu = suitable({DeviceKind.CPU}, beside_job=False, names=list(MICRO_BENCHMARKS.entries))
    return {one.resource for one in on_cpu if one.need is None}


async def suspects(site: MonitoredSite, node: str) -> None:
    """A run that does not agree to micro-benchmarks becomes slow on a node and ends. No campaign has measured the idle
    node, so nothing can validate the suspicion."""
    run = await site.join(node, beside_job=False)
    await site.feel(run, 1.0, seconds=10)
    await site.feel(run, 1.7, seconds=10)
    site.monitor.unwatch(run.run_id)


async def new_checks(site: MonitoredSite, before: int, seconds: int = 20) -> list[dict[str, Any]]:
    """The checks that are made in the next seconds, oldest first."""
    for _ in range(seconds):
        await site.passes(1.0)
    return sorted(await checks(site), key=lambda row: row["checked_at"])[before:]


def test_a_suspicion_is_followed_by_one_check_of_each_resource(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        await hours(site, 2)
        before = len(await checks(site))
        await suspects(site, "n1")
        assert await incidents(site) == [("n1", "slow", "suspected")]
        rows = await new_checks(site, before)
        assert {row["node"] for row in rows} == {"n1"}
        assert sorted(MICRO_BENCHMARKS[row["benchmark"]].resource for row in rows) == sorted(measurable())
        assert len(measurable()) >= 4
        assert await incidents(site) == [("n1", "slow", "suspected")], "without a past the checks cannot decide"

    at_site(tmp_path, work)


def test_checks_that_follow_a_suspicion_dismiss_it_or_show_what_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some checks of each resource a result can be compared with earlier ones."""
    some = [MICRO_BENCHMARKS[name] for name in ("gemm", "memory", "memory_pattern", "disk_write")]
    monkeypatch.setattr(idle_checks, "suitable", lambda *_, **__: some)

    async def work(site: MonitoredSite) -> None:
        await hours(site, 40)
        await suspects(site, "n1")
        await new_checks(site, len(await checks(site)))
        assert await incidents(site) == [("n1", "slow", "dismissed")]
        await hours(site, 2)
        site.seconds["n1"] *= 1.3
        await suspects(site, "n1")
        await new_checks(site, len(await checks(site)))
        assert sorted(await incidents(site)) == [
            ("n1", "below_fleet", "confirmed"),
            ("n1", "slow", "dismissed"),
            ("n1", "slow", "suspected"),
        ]

    at_site(tmp_path, work)


def test_a_suspected_node_is_no_partner_of_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_checks, "suitable", lambda *_, **__: (MICRO_BENCHMARKS["all_reduce"],))

    async def inside() -> None:
        async with monitored_site(tmp_path, check_pause_seconds=PAUSE) as site:
            for number in (1, 2):
                await site.add_node(f"n{number}", number, peer_address=f"n{number}:7300")
            await suspects(site, "n1")
            await hours(site, 4)
            assert {row["node"] for row in await checks(site)} == {"n1"}

    asyncio.run(inside())


def test_what_cannot_be_checked_now_does_not_make_other_checks_more_frequent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nodes are suspected, so neither is a partner, and their network is left."""
    some = [MICRO_BENCHMARKS[name] for name in ("gemm", "all_reduce")]
    monkeypatch.setattr(idle_checks, "suitable", lambda *_, **__: some)

    async def inside() -> None:
        async with monitored_site(tmp_path, check_pause_seconds=PAUSE) as site:
            for number in (1, 2):
                await site.add_node(f"n{number}", number, peer_address=f"n{number}:7300")
            await hours(site, 2)  # the next usual checks are due in a quarter of an hour at the earliest
            before = len(await checks(site))
            for node in ("n1", "n2"):
                await suspects(site, node)
            rows = await new_checks(site, before, seconds=60)
            assert sorted((row["node"], row["benchmark"]) for row in rows) == [("n1", "gemm"), ("n2", "gemm")]

    asyncio.run(inside())


def test_a_node_is_followed_up_once_in_a_pause() -> None:
    time = HandClock()
    follow_ups = FollowUps(PAUSE, time.clock)
    both = {Resource.COMPUTE, Resource.STORAGE}
    candidates = [Candidate("n1", "gemm", Resource.COMPUTE, 1.0), Candidate("n1", "disk", Resource.STORAGE, 1.0)]
    assert not follow_ups.goes_on("n1") and not follow_ups.choose_from(candidates, both, {})
    follow_ups.want("n1", "first")
    assert follow_ups.choose_from(candidates, both, {}) == candidates
    follow_ups.check("n1", Resource.COMPUTE, CheckResult.HEALTHY)
    assert follow_ups.choose_from(candidates, both, {}) == candidates[1:]
    assert not follow_ups.was_found_healthy("n1", "first")
    follow_ups.put_off("n1", 10.0)
    assert not follow_ups.goes_on("n1")
    time.now += 10.0
    assert follow_ups.goes_on("n1")
    follow_ups.check("n1", Resource.STORAGE, CheckResult.HEALTHY)
    assert not follow_ups.goes_on("n1") and follow_ups.was_found_healthy("n1", "first")
    follow_ups.want("n1", "first")
    follow_ups.want("n1", "second")
    assert not follow_ups.goes_on("n1"), "the first one has just been followed up"
    time.now += PAUSE
    follow_ups.want("n1", "first")
    assert not follow_ups.goes_on("n1"), "one suspicion is followed up once"
    follow_ups.want("n1", "second")
    assert follow_ups.goes_on("n1") and not follow_ups.was_found_healthy("n1", "second")
    follow_ups.check("n1", Resource.COMPUTE, CheckResult.UNDECIDED)
    time.now += PAUSE
    assert not follow_ups.goes_on("n1"), "what could not be checked in a pause is given up"
    assert not follow_ups.was_found_healthy("n1", "second")


def test_of_one_resource_the_benchmark_that_can_decide_follows_a_suspicion() -> None:
    follow_ups = FollowUps(PAUSE, HandClock().clock)
    follow_ups.want("n1", "al-1")
    new, known = Candidate("n1", "a", Resource.COMPUTE, 1.0), Candidate("n1", "b", Resource.COMPUTE, 9.0)
    chosen = follow_ups.choose_from([new, known], {Resource.COMPUTE}, {"a": MIN_PAST_RUNS - 1, "b": MIN_PAST_RUNS})
    assert chosen == [known]


@pytest.mark.usefixtures("only_gemm")
def test_a_node_that_has_become_slower_while_idle_is_confirmed_until_it_is_as_before(tmp_path: Path) -> None:
    time = HandClock()

    async def work(site: MonitoredSite) -> None:
        await hours(site, 6)
        site.seconds["n1"] *= 1.1
        await hours(site, 2)
        assert await incidents(site) == [("n1", "below_fleet", "confirmed")]
        (row,) = await listed(site.storage, "alerts")
        assert row["short_resource"] == "compute" and row["evidence"].startswith("gemm: 1.1")
        assert site.states["n1"][-1].state.is_reported and not site.states["n2"][-1].state.is_open
        run = await site.join("n1")
        heard = await anext(aiter(site.monitor.alerts(run.run_id)))
        assert heard.what == "this node is slower than healthy nodes while it is idle"
        site.monitor.unwatch(run.run_id)
        await hours(site, 6)
        assert await incidents(site) == [("n1", "below_fleet", "confirmed")], "it does not get used to being slow"

    async def after_a_restart(site: MonitoredSite) -> None:
        site.seconds["n1"] *= 1.1
        await hours(site, 2)
        assert await incidents(site) == [("n1", "below_fleet", "confirmed")]
        site.seconds["n1"] /= 1.1
        await hours(site, 3)
        assert await incidents(site) == [("n1", "below_fleet", "cleared")]
        assert not site.states["n1"][-1].state.is_reported

    at_site(tmp_path, work, time)
    at_site(tmp_path, after_a_restart, time)


@pytest.mark.usefixtures("only_gemm")
def test_a_single_slow_check_is_no_incident(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        await hours(site, 6)
        measured = site._probed

        def once(*arguments: Any) -> list[BenchmarkResult]:
            site._probed = measured  # type: ignore[method-assign]
            site.seconds["n1"], site.seconds["n2"] = 0.02, 0.02
            try:
                return measured(*arguments)
            finally:
                site.seconds.clear()

        site._probed = once  # type: ignore[method-assign]
        await hours(site, 2)
        assert "slower" in {row["result"] for row in await checks(site)}
        assert await incidents(site) == []

    at_site(tmp_path, work)


@pytest.mark.usefixtures("only_gemm")
def test_a_node_that_computes_something_wrong_is_confirmed_without_a_past(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        site.wrong.add("n2")
        await hours(site, 2)
        assert await incidents(site) == [("n2", "wrong_answer", "confirmed")]

    at_site(tmp_path, work)


@pytest.mark.usefixtures("only_gemm")
def test_a_node_that_is_always_wrong_in_the_same_way_is_known_by_its_peers(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        await site.add_node("n3", 3)
        await site.add_node("n4", 4, "another processor")
        right, wrong = (answer_digest("torch", numbers) for numbers in (b"right", b"wrong"))
        site.digests = {"n1": right, "n2": right, "n3": wrong, "n4": wrong}
        await hours(site, 4)
        assert await incidents(site) == [("n3", "wrong_answer", "confirmed")]
        (row,) = await listed(site.storage, "alerts")
        assert row["evidence"] == (
            "gemm: its numbers differ from those of 2 of 3 nodes with the same facts, twice in a row"
        )
        site.digests["n3"] = right
        await hours(site, 10)  # whether it is as fast as before is known after three checks
        assert await incidents(site) == [("n3", "wrong_answer", "cleared")]

    at_site(tmp_path, work)


@pytest.mark.usefixtures("only_gemm")
def test_a_node_whose_numbers_cannot_be_compared_any_more_stays_wrong(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        await site.add_node("n3", 3)
        right, wrong = (answer_digest("torch", numbers) for numbers in (b"right", b"wrong"))
        site.digests = dict.fromkeys(("n1", "n2", "n3"), right)
        await hours(site, 6)
        site.digests["n3"] = wrong
        await hours(site, 2)
        assert await incidents(site) == [("n3", "wrong_answer", "confirmed")]
        await site.disconnect("n2")
        await hours(site, 4)
        assert await incidents(site) == [("n3", "wrong_answer", "confirmed")], "as fast as before, and as wrong"

    at_site(tmp_path, work)


def test_an_incident_ends_by_what_has_raised_it_and_by_nothing_of_a_similar_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = tuple(MICRO_BENCHMARKS[name] for name in ("step_convolution", "convolution"))
    monkeypatch.setattr(idle_checks, "suitable", lambda *_, **__: both)

    async def work(site: MonitoredSite) -> None:
        measured = site._probed

        def slow_steps(node: str, order_id: str, content: Mapping[str, Any]) -> list[BenchmarkResult]:
            slow = node == "n1" and content["benchmarks"] == ["step_convolution"] and site.time.now > slow_from
            site.seconds["n1"] = 0.011 if slow else 0.01
            return measured(node, order_id, content)

        site._probed = slow_steps  # type: ignore[method-assign]
        slow_from = inf
        await hours(site, 16)
        slow_from = site.time.now
        await hours(site, 10)
        assert await incidents(site) == [("n1", "below_fleet", "confirmed")]

    at_site(tmp_path, work)


@pytest.mark.usefixtures("only_gemm")
def test_an_incident_that_cannot_be_stored_is_raised_by_the_next_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, failures = IncidentBook.put, [True]

    async def failing(self: IncidentBook, change: Transition) -> None:
        if failures:
            failures.pop()
            raise StoreError("the disk is full")
        await put(self, change)

    async def work(site: MonitoredSite) -> None:
        site.wrong.add("n2")
        monkeypatch.setattr(IncidentBook, "put", failing)
        await hours(site, 2)
        assert not failures
        await hours(site, 2)
        assert await incidents(site) == [("n2", "wrong_answer", "confirmed")]

    at_site(tmp_path, work)


@pytest.mark.usefixtures("only_gemm")
def test_an_incident_of_a_node_that_is_gone_for_a_day_ends(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        site.wrong.add("n2")
        await hours(site, 2)
        await site.disconnect("n2")
        await hours(site, 22)
        assert await incidents(site) == [("n2", "wrong_answer", "confirmed")]
        await hours(site, 4)
        assert await incidents(site) == [("n2", "wrong_answer", "cleared")]

    at_site(tmp_path, work)


def test_a_node_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        await site.join("n1", beside_job=False)
        site.in_use.add("n2")
        for _ in range(8):
            await site.passes(20.0)  # a run that does not report for three minutes is lost
        assert await checks(site) == []

    at_site(tmp_path, work, pause=20.0)


def test_a_pause_of_zero_switches_checks_off(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        await hours(site, 3)
        assert await checks(site) == []

    at_site(tmp_path, work, pause=0.0)
