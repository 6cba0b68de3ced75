"""A node that becomes slow under a run, for tests of the monitor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from pharoah_learning.release import BenchmarkBaseline, Release
from pharoah_protocol.incident_states import CONFIRMED
from pharoah_provider.domain import Run, Transition
from tests.harness.monitored import HEALTHY_SECONDS, MonitoredSite, monitored_site

SLOW = 3 * HEALTHY_SECONDS
"""What a micro-benchmark takes on the slow node, in seconds."""
RELEASE = Release(
    1,
    baselines=tuple(
        BenchmarkBaseline(node, benchmark, beside_job, HEALTHY_SECONDS)
        for node in ("n1", "n2")
        for benchmark in ("gemm", "memory")
        for beside_job in (True, False)
    ),
)


def at_site(folder: Path, work: Callable[[MonitoredSite], Awaitable[None]], release: Release = RELEASE) -> None:
    async def inside() -> None:
        async with monitored_site(folder, release) as site:
            await site.add_node("n1", cpu=1)
            await site.add_node("n2", cpu=2)
            await work(site)

    asyncio.run(inside())


async def heard(site: MonitoredSite, run: Run) -> list[Transition]:
    """What a run has heard so far."""
    found: list[Transition] = []

    async def listen() -> None:
        async for change in site.monitor.alerts(run.run_id):
            found.append(change)

    task = asyncio.create_task(listen())
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})
    return found


async def confirmed_run(site: MonitoredSite, ranks: int = 1) -> Run:
    """A run on n1 whose node has become slow, and is known to have."""
    run = await site.join("n1", ranks)
    await site.feel(run, *[1.0] * ranks, seconds=10)
    site.seconds["n1"] = SLOW
    await site.feel(run, *[1.6] * ranks, seconds=10)
    assert await site.alerts() == [("n1", "confirmed")]
    return run


async def established_incident(site: MonitoredSite) -> Run:
    """A run on n1 that has ended on a slow node, which was measured since while it was idle."""
    run = await confirmed_run(site)
    site.monitor.unwatch(run.run_id)
    for _ in range(6):
        await site.passes(10.0)
    assert site.fleet.state("n1").state is CONFIRMED
    return run
