"""Micro-benchmarks from sidecars: when the provider orders them, and what it takes from them. The clock is set by hand;
storage, fleet and monitor are real, and a script plays the sidecar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_learning.release import BenchmarkBaseline, Release
from pharoah_protocol.guest_probes import GuestOrder, GuestResult
from pharoah_protocol.reports import ReportedLevels
from pharoah_protocol.vocabulary import ProbeStatus
from pharoah_provider.domain import Run
from pharoah_provider.monitoring.guest_orders import PAUSE_SECONDS, StopOrder
from pharoah_provider.monitoring.guest_results import ProbeRejected, ProbeRejection
from tests.harness.listings import listed
from tests.harness.monitored import HEALTHY_SECONDS, PROVIDER_KEY, MonitoredSite, monitored_site
from tests.harness.until import until

KEY = Ed25519PrivateKey.from_private_bytes(b"r" * 32)
PUBLIC = KEY.public_key().public_bytes_raw()
SIDECAR_SECONDS = 5 * HEALTHY_SECONDS
"""What a repeat takes at a low priority beside the job, on a healthy node."""
SHARE = 8.0
RELEASE = Release(
    1, baselines=tuple(BenchmarkBaseline("n1", name, True, HEALTHY_SECONDS) for name in ("gemm", "memory"))
)


@dataclass
class PlayedSidecar:
    """A sidecar that does every order, takes a second for it, and finds what the test says."""

    site: MonitoredSite
    run: Run
    seconds: float = SIDECAR_SECONDS
    status: ProbeStatus = ProbeStatus.MEASURED
    answers: bool = True
    orders: list[GuestOrder] = field(default_factory=list)
    stopped: list[bytes] = field(default_factory=list)

    async def serve(self) -> None:
        async for item in self.site.monitor.guests.orders(self.run):
            if isinstance(item, StopOrder):
                self.stopped.append(item.order_id)
                continue
            order = GuestOrder.verify(item.body, item.signature, PROVIDER_KEY.public_key())
            self.orders.append(order)
            if self.answers:
                self.site.time.now += 1.0
                self.answer(order)

    def answer(self, order: GuestOrder) -> None:
        times = (self.seconds,) * 3 if self.status is ProbeStatus.MEASURED else ()
        result = GuestResult(order=order, status=self.status, seconds=times)
        self.site.monitor.guests.take_answer(self.run, result.encode(), result.make_signature(KEY))


@asynccontextmanager
async def sidecar(site: MonitoredSite, run: Run) -> AsyncIterator[PlayedSidecar]:
    played = PlayedSidecar(site, run)
    task = asyncio.create_task(played.serve())
    await asyncio.sleep(0)  # it watches from now on
    try:
        yield played
    finally:
        task.cancel()
        await asyncio.wait({task})


def at_site(
    folder: Path, work: Callable[[MonitoredSite], Awaitable[None]], release: Release | None = None, share: float = SHARE
) -> None:
    """One node that is known and whose agent is away."""

    async def inside() -> None:
        async with monitored_site(folder, release, share=share) as site:
            await site.add_node("n1", 1)
            await site.disconnect("n1")
            await work(site)

    asyncio.run(inside())


async def states(site: MonitoredSite) -> list[str]:
    """States of the incidents of nodes themselves, without those of their agents."""
    return [row["state"] for row in await listed(site.storage, "alerts") if row["kind"] == "slow"]


def sent(site: MonitoredSite, result: str) -> float:
    value = site.metrics.registry.get_sample_value("pharoah_guest_probe_results_total", {"result": result})
    return value or 0.0


def test_a_node_without_an_agent_is_found_slow_by_the_sidecar_of_a_run_that_has_agreed(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", probe_key=PUBLIC)
        async with sidecar(site, run) as played:
            await site.feel(run, 1.0, seconds=20)
            learned = len(played.orders)
            assert learned >= 6 and {order.benchmark for order in played.orders} == {"gemm", "memory"}
            assert all(order.duty <= 0.5 and order.longest_seconds <= run.limit_seconds for order in played.orders)
            assert len({order.challenge for order in played.orders}) == learned
            await site.feel(run, 1.0, seconds=5)
            assert len(played.orders) == learned, "its levels are known"
            played.seconds = 3 * SIDECAR_SECONDS
            await site.feel(run, 1.6, seconds=12)
            assert await states(site) == ["confirmed"]
            assert sent(site, "accepted") == len(played.orders)
        probes = await listed(site.storage, "probes")
        assert len(probes) == len(played.orders) and {row["node"] for row in probes} == {"n1"}
        assert site.fleet.state("n1").state.name == "quiet", "one organisation convicts for itself"

    at_site(tmp_path, work)


def test_what_a_sidecar_measures_is_not_compared_with_baselines_of_agents(tmp_path: Path) -> None:
    """It takes five times as long at its priority, which says nothing about the node."""

    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", probe_key=PUBLIC)
        async with sidecar(site, run) as played:
            await site.feel(run, 1.6, seconds=20)
            assert played.orders and await states(site) == ["suspected"]

    at_site(tmp_path, work, RELEASE)


def test_levels_begin_anew_when_the_agent_is_back(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", probe_key=PUBLIC)
        async with sidecar(site, run) as played:
            await site.feel(run, 1.0, seconds=20)
            ordered = len(played.orders)
            await site.add_node("n1", 1)
            site.seconds["n1"] = HEALTHY_SECONDS
            await site.feel(run, 1.6, seconds=6)
            assert len(played.orders) == ordered and site.ordered, "the agent is asked"
            assert await states(site) == ["suspected"], "as fast as agents are"
            site.seconds["n1"] = 4.5 * HEALTHY_SECONDS  # faster than the sidecar, and slow for an agent
            await site.feel(run, 1.6, seconds=12)
            assert await states(site) == ["confirmed"]

    at_site(tmp_path, work, RELEASE)


@pytest.mark.parametrize("key", [b"", PUBLIC])
def test_without_a_key_or_a_stream_nothing_is_ordered(tmp_path: Path, key: bytes) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", probe_key=key)
        if key:
            await site.feel(run, 3.0, seconds=10)
        else:
            async with sidecar(site, run) as played:
                await site.feel(run, 3.0, seconds=10)
                assert played.orders == []
        assert await states(site) == ["suspected"] and await listed(site.storage, "probes") == []

    at_site(tmp_path, work)


def test_nothing_is_ordered_beside_a_run_on_the_host_that_has_not_agreed(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", probe_key=PUBLIC)
        await site.join("n1", tenant="victim", beside_job=False)
        async with sidecar(site, run) as played:
            await site.feel(run, 3.0, seconds=10)
            assert played.orders == []

    at_site(tmp_path, work)


def test_a_sidecar_is_not_asked_about_the_incident_of_another_organisation(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        raised = await site.join("n1", tenant="other")
        run = await site.join("n1", probe_key=PUBLIC)
        async with sidecar(site, run) as played:
            for _ in range(6):
                await site.passes(1.0)
                await site.report(raised, [ReportedLevels(12)])
                await site.report(run, [ReportedLevels()])
            assert await states(site) == ["suspected"]
            played.orders.clear()
            site.monitor.unwatch(raised.run_id)
            await site.feel(run, 1.0, seconds=20)
            assert played.orders == []

    at_site(tmp_path, work)


def test_a_sidecar_that_refuses_is_left_alone_for_a_while(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", probe_key=PUBLIC)
        async with sidecar(site, run) as played:
            played.status = ProbeStatus.REFUSED
            await site.feel(run, 1.0, seconds=60)
            assert len(played.orders) == 1, "not even for the second benchmark"
            await site.feel(run, 1.0, seconds=int(PAUSE_SECONDS))
            assert len(played.orders) == 2
        assert await listed(site.storage, "probes") == []

    at_site(tmp_path, work)


def test_an_order_is_alone_masks_windows_and_stops_for_a_run_that_comes(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run, beside = [await site.join("n1", probe_key=PUBLIC) for _ in range(2)]
        async with sidecar(site, run) as played, sidecar(site, beside) as second:
            played.answers = second.answers = False
            for _ in range(4):
                site.time.now += 1.0
                for one in (run, beside):
                    await site.report(one, [ReportedLevels()])
            await until(lambda: bool(played.orders + second.orders), "an order")
            (order,) = played.orders + second.orders
            assert site.fleet.cores_busy("n1") and site.monitor.measures("n1")
            await site.join("n1", tenant="victim", beside_job=False)
            await until(lambda: bool(played.stopped + second.stopped), "a stop")
            assert [order.order_id] == played.stopped + second.stopped
            asked = played if played.orders else second
            with pytest.raises(ProbeRejected) as late:
                asked.answer(order)
            assert late.value.rejection is ProbeRejection.LATE
            assert sent(site, "late") == 1 and sent(site, "accepted") == 0
            await site.validated()
            assert not site.fleet.cores_busy("n1")

    at_site(tmp_path, work)


def test_a_sidecar_that_goes_away_ends_its_order_and_a_run_that_ends_ends_the_stream(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", probe_key=PUBLIC)
        async with sidecar(site, run) as played:
            played.answers = False
            site.time.now += 1.0
            await site.report(run, [ReportedLevels()])
            await until(lambda: bool(played.orders), "an order")
        await site.validated()  # nobody waits for it
        assert not site.fleet.cores_busy("n1")
        again = PlayedSidecar(site, run)
        serving = asyncio.create_task(again.serve())
        await asyncio.sleep(0)
        site.monitor.unwatch(run.run_id)
        async with asyncio.timeout(10):
            await serving

    at_site(tmp_path, work)


def test_one_percent_of_the_time_is_a_bound_for_sidecars_too(tmp_path: Path) -> None:
    async def work(site: MonitoredSite) -> None:
        run = await site.join("n1", probe_key=PUBLIC)
        async with sidecar(site, run) as played:
            await site.feel(run, 1.0, seconds=600)
            assert 0 < len(played.orders) <= 0.01 * 600, "each takes a second"

    at_site(tmp_path, work, share=0.01)
