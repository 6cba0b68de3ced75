"""The nodes of the fleet, each with its agent. Only their results have a context, and only they have baselines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from pharoah_benchmarks.campaign.cell import Cell, CellResult, Degradation
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.campaigns.executor_settings import ExecutorSettings
from pharoah_provider.campaigns.executors._executor import Executor, ExecutorKind
from pharoah_provider.campaigns.works import Work, WorkResult
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet
from pharoah_provider.micro_benchmarks import measure
from pharoah_system.had_time import MAX_WALL_RATIO

log = logging.getLogger("pharoah.provider.campaigns")

AWAY_SECONDS = 60.0
"""How long a node that is away keeps its block: an agent that is restarted is back within seconds."""
IDLE_ROUNDS, BESIDE_ROUNDS = 2, 2
"""Rounds of micro-benchmarks per node, idle and beside a job."""
COMPANION_START_SECONDS = 4.0
"""Time for the companion to start before the first round beside it. Its dry run takes 2 s."""
BESIDE_ATTEMPTS = 2
"""How often the rounds beside a companion are measured: in the second attempt its fork server has started."""
BESIDE_SECONDS = 1.5
"""How long one micro-benchmark may take beside the companion: as long as in a validation."""
WARM_SECONDS = 0.01
"""How long one may take before the companion starts, so that what measures has started. Beside a job it starts at a
share of the time, and where the idle rounds used a GPU it has ended since."""
COMPANION = Cell("baseline/companion", "gpt", {}, seconds=18.0, degradation=Degradation())
"""The cell that trains while the baseline beside a job is measured. The two rounds on a CPU take 8 s on two cores."""


class _Beside(NamedTuple):
    """Rounds that were to be measured beside a companion."""

    results: list[BenchmarkResult]
    not_beside: str
    """Why they were not; empty where they were."""


class AgentExecutor:
    """Sends works to the agents that are connected."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    @property
    def away_seconds(self) -> float:
        return AWAY_SECONDS

    def nodes(self) -> list[Node]:
        return self._fleet.list_connected()

    async def do(self, node: Node, work: Work, order_id: str) -> WorkResult:
        if work.cell is None:
            return await self._baseline(node)
        return await self._fleet.run_cell(node.node, work.cell, order_id)

    def release(self, node: str, order_id: str) -> None:
        self._fleet.release(node, order_id)

    async def _baseline(self, node: Node) -> list[BenchmarkResult]:
        results: list[BenchmarkResult] = []
        for _ in range(IDLE_ROUNDS):
            results += await measure(self._fleet, node.node, beside_job=False, patience=MAX_WALL_RATIO)
        return results + await self._beside_job(node.node)

    async def _beside_job(self, node: str) -> list[BenchmarkResult]:
        """Rounds beside a job of the provider's own. None where it trained during all of them in no attempt: measured
        beside nothing, they would make every job on this node look slow."""
        for _ in range(BESIDE_ATTEMPTS):
            results, reason = await self._beside_companion(node)
            if not reason:
                return results
            log.warning("node %s: the baseline beside a job was not measured beside one: %s", node, reason)
        return []

    async def _beside_companion(self, node: str) -> _Beside:
        await measure(self._fleet, node, beside_job=True, limit_seconds=WARM_SECONDS, patience=MAX_WALL_RATIO)
        results: list[BenchmarkResult] = []
        async with asyncio.TaskGroup() as group:
            cell = replace(COMPANION, id=f"{COMPANION.id}/{node}")
            companion = group.create_task(self._fleet.run_cell(node, cell))
            await asyncio.sleep(COMPANION_START_SECONDS)
            for _ in range(BESIDE_ROUNDS):
                results += await measure(
                    self._fleet, node, beside_job=True, limit_seconds=BESIDE_SECONDS, patience=MAX_WALL_RATIO
                )
        return _Beside(results, _not_beside(companion.result(), results))


def _not_beside(companion: CellResult, rounds: Sequence[BenchmarkResult]) -> str:
    """Why rounds were not measured beside a companion; empty where it trained during all of them. All times are by the
    clock of the node."""
    if companion.outcome is not Outcome.OK:
        return f"the companion ended with {companion.outcome}: {companion.detail}"
    began_at, ended_at = companion.began_at, companion.began_at + sum(companion.step_seconds)
    if any(one.started_at < began_at or ended_at < one.ended_at for one in rounds):
        return "the companion did not train during all rounds"
    return ""


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
