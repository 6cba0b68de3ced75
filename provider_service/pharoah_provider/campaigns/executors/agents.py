"""The nodes of the fleet, each with its agent. Only their results have a context, and only they have baselines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from pharoah_benchmarks.campaign.cell import Cell, Degradation
from pharoah_learning.evidence import BenchmarkResult
from pharoah_provider.campaigns.executor_settings import ExecutorSettings
from pharoah_provider.campaigns.executors._executor import Executor, ExecutorKind
from pharoah_provider.campaigns.works import Work, WorkResult
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet
from pharoah_provider.micro_benchmarks import measure

AWAY_SECONDS = 60.0
"""How long a node that is away keeps its block: an agent that is restarted is back within seconds."""
IDLE_ROUNDS, BESIDE_ROUNDS = 2, 2
"""Rounds of micro-benchmarks per node, idle and beside a job."""
COMPANION_START_SECONDS = 2.5
"""Time for the companion to start before the first round beside it."""
BESIDE_SECONDS = 1.5
"""How long one micro-benchmark may take beside the companion, which trains for 9 s: as long as in a validation."""
COMPANION = Cell("baseline/companion", "gpt", {}, seconds=9.0, degradation=Degradation())
"""The cell that trains while the baseline beside a job is measured."""


class AgentExecutor:
    """Sends works to the agents that are connected."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    @property
    def away_seconds(self) -> float:
        return AWAY_SECONDS

    def nodes(self) -> list[Node]:
        return self._fleet.connected()

    async def do(self, node: Node, work: Work, order_id: str) -> WorkResult:
        if work.cell is None:
            return await self._baseline(node)
        return await self._fleet.run_cell(node.node, work.cell, order_id)

    def release(self, node: str, order_id: str) -> None:
        self._fleet.release(node, order_id)

    async def _baseline(self, node: Node) -> list[BenchmarkResult]:
        results: list[BenchmarkResult] = []
        for _ in range(IDLE_ROUNDS):
            results += await measure(self._fleet, node.node, beside_job=False)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fleet.run_cell(node.node, replace(COMPANION, id=f"{COMPANION.id}/{node.node}")))
            await asyncio.sleep(COMPANION_START_SECONDS)
            for _ in range(BESIDE_ROUNDS):
                results += await measure(self._fleet, node.node, beside_job=True, limit_seconds=BESIDE_SECONDS)
        return results


@asynccontextmanager
async def _open(_: ExecutorSettings, fleet: Fleet) -> AsyncIterator[Executor]:
    yield AgentExecutor(fleet)


AGENTS = ExecutorKind(
    name="agents",
    help="the connected nodes of the fleet; only their results have a context",
    has_contexts=True,
    options=(),
    remedy="start pharoah-agent there",
    check=lambda _: None,
    open=_open,
)
