"""Agents that come twice, send twice, send nonsense or have a wrong clock harm neither the records nor other agents."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pharoah_protocol.v1 import AgentMessage, Telemetry
from pharoah_provider.agent_budgets import MAX_BATCH
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.scripted_agents import ScriptedAgent, ScriptedSite, scripted_site
from tests.harness.until import until
from tests.security.test_lying_agents import honest_agents

DAY_SECONDS = 86_400.0


def telemetry(number: int, *values: float, at: float | None = None) -> AgentMessage:
    """One batch: readings of one signal, two seconds apart."""
    first, size = time.time() - 2 * len(values) if at is None else at, len(values)
    columns = {"metric": ["m"] * size, "device": [""] * size, "value": values}
    return AgentMessage(telemetry=Telemetry(batch=number, sampled_at=[first + 2 * i for i in range(size)], **columns))


def with_agents(folder: Path, work: Callable[[ScriptedSite, Sequence[ScriptedAgent]], Awaitable[None]]) -> None:
    """A provider that knows two agents, none of them connected."""
    agents = honest_agents()[:2]

    async def inside() -> None:
        async with scripted_site(folder, [], [f"agent {agent.name} {agent.token}" for agent in agents]) as site:
            await work(site, agents)

    asyncio.run(inside())


async def stored(folder: Path) -> list[dict[str, Any]]:
    """The spans of telemetry in the database of a provider that has ended."""
    storage = DuckStorage(folder / "p.duckdb")
    try:
        return await storage.select(
            "SELECT node, value, readings FROM telemetry_spans UNION ALL BY NAME "
            "SELECT node, value, readings FROM open_telemetry_spans ORDER BY node, value"
        )
    finally:
        storage.close()


def test_batches_that_an_agent_sends_again_after_its_connection_was_lost_are_stored_once(tmp_path: Path) -> None:
    sent = [telemetry(1, 0.0, 0.0), telemetry(2, 1.0, 1.0, at=time.time())]

    async def work(site: ScriptedSite, agents: Sequence[ScriptedAgent]) -> None:
        for _ in range(3):
            site.acknowledged.clear()
            async with site.connected(agents[0]) as out:
                for message in sent:
                    out.put_nowait(message)
                await until(lambda: site.acknowledged.get("n1") == 2, "the batches to be acknowledged")

    with_agents(tmp_path, work)
    rows = asyncio.run(stored(tmp_path))
    assert rows == [{"node": "n1", "value": value, "readings": 2} for value in (0.0, 1.0)]


def test_an_agent_whose_clock_is_wrong_hears_so_and_others_go_on(tmp_path: Path) -> None:
    async def work(site: ScriptedSite, agents: Sequence[ScriptedAgent]) -> None:
        async with site.connected(agents[1]) as other, site.connected(agents[0]) as wrong:
            wrong.put_nowait(telemetry(1, 1.0, at=time.time() - 3 * DAY_SECONDS))
            await until(lambda: "sampled_at" in site.notices["n1"], "the notice")
            other.put_nowait(telemetry(1, 1.0))
            await until(lambda: site.acknowledged.get("n2") == 1, "the other agent's batch")
            wrong.put_nowait(telemetry(2, 1.0))  # its clock was set
            await until(lambda: site.acknowledged.get("n1") == 2, "the batch with the right time")
            assert len(await site.listing("telemetry")) == 2, "one of each node"

    with_agents(tmp_path, work)


def test_the_storm_of_one_agent_and_its_missing_readings_do_not_delay_the_other(tmp_path: Path) -> None:
    async def work(site: ScriptedSite, agents: Sequence[ScriptedAgent]) -> None:
        async with site.connected(agents[0]) as storm, site.connected(agents[1]) as calm:
            for number in range(100):
                storm.put_nowait(telemetry(number, *[float("nan")] * (MAX_BATCH // 10)))
            calm.put_nowait(telemetry(1, 0.0))
            await until(lambda: site.acknowledged.get("n2") == 1, "the calm agent's batch")
            assert site.acknowledged.get("n1", 0) < 99, "it was not behind the storm"

    with_agents(tmp_path, work)


def test_two_agents_with_one_name_leave_the_node_connected_when_the_older_one_goes(tmp_path: Path) -> None:
    async def work(site: ScriptedSite, agents: Sequence[ScriptedAgent]) -> None:
        async def connected() -> str:
            (row,) = await site.listing("nodes")
            return str(row["connected"])

        async with site.connected(agents[0]) as older:
            older.put_nowait(telemetry(1, 0.0))
            await until(lambda: site.acknowledged.get("n1") == 1, "the older agent's batch")
            newer = site.connected(replace(agents[0], answer=agents[1].answer))
            out = await newer.__aenter__()
        try:
            out.put_nowait(telemetry(7, 1.0, at=time.time()))
            await until(lambda: site.acknowledged.get("n1") == 7, "the newer agent's batch")
            assert await connected() == "yes"
        finally:
            await newer.__aexit__(None, None, None)
        await until(lambda: _is(connected(), "no"), "the node to be away")

    with_agents(tmp_path, work)


async def _is(found: Awaitable[str], expected: str) -> bool:
    return await found == expected
