"""Campaigns: every cell in every context that is connected, then degraded runs, then benchmark baselines."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace

from pharoah_benchmarks.campaign.cell import Cell, Degradation, Outcome
from pharoah_benchmarks.campaign.plan import CampaignPlan
from pharoah_protocol.vocabulary import Purpose
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet, shares_cores
from pharoah_provider.micro_benchmarks import measure
from pharoah_provider.storage.base import EvidenceStore
from pharoah_serving.errors import NotReady

IDLE_ROUNDS, BESIDE_ROUNDS = 2, 2
COMPANION = Cell("baseline/companion", "gpt", {}, seconds=9.0, degradation=Degradation("none"))
"""What trains while the beside-a-job baseline is taken."""


@dataclass(frozen=True)
class Progress:
    """One finished cell or round of micro-benchmarks, and how many are done."""

    done: int
    total: int
    node: str
    cell: str
    outcome: str


class Campaign:
    """One campaign over the fleet. Nodes that share cores take turns; everything else runs in parallel."""

    def __init__(self, plan: CampaignPlan, fleet: Fleet, evidence: EvidenceStore) -> None:
        """Raises NotReady without a connected node."""
        self._plan, self._fleet, self._evidence = plan, fleet, evidence
        self._nodes = fleet.connected()
        if not self._nodes:
            raise NotReady("no agent is connected: start pharoah-agent on the nodes first")
        self._hosts = _turns(self._nodes)
        self._events: asyncio.Queue[Progress | BaseException | None] = asyncio.Queue()
        self._done = 0
        self._contexts = {node.context_id for node in self._nodes}
        self._total = (
            len(plan.cells) * len(self._contexts)
            + len(plan.degraded)
            + len(self._nodes) * (IDLE_ROUNDS + BESIDE_ROUNDS)
        )

    async def run(self) -> AsyncIterator[Progress]:
        """Progress as it is made. Raises what stopped the campaign; what is done is stored."""
        work = asyncio.create_task(self._run())
        try:
            while (event := await self._events.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            work.cancel()
            await asyncio.wait({work})

    async def _run(self) -> None:
        try:
            queues = {context: list(reversed(self._plan.cells)) for context in self._contexts}
            degraded = list(reversed(self._plan.degraded))
            async with asyncio.TaskGroup() as group:
                for nodes in self._hosts:
                    group.create_task(self._work(nodes, queues, degraded))
            for node in self._nodes:
                # One at a time: nodes that are guests of one host take time from each other when all are busy.
                await self._baseline(node)
            await self._events.put(None)
        except BaseExceptionGroup as failures:
            await self._events.put(failures.exceptions[0])
        except Exception as failure:  # noqa: BLE001 - whoever reads the progress raises it
            await self._events.put(failure)

    async def _work(self, nodes: list[Node], queues: dict[str, list[Cell]], degraded: list[Cell]) -> None:
        """One set of cores: cells of its nodes' contexts, rarest context first, then degraded runs."""
        rarity = {c: sum(node.context_id == c for node in self._nodes) for c in self._contexts}
        for node in sorted(nodes, key=lambda node: rarity[node.context_id]):
            queue = queues[node.context_id]
            while queue:
                await self._cell(node, queue.pop())
        # Degraded runs need the plainest node there is: the context most nodes share.
        plain = max(nodes, key=lambda node: rarity[node.context_id])
        while degraded:
            await self._cell(plain, degraded.pop())

    async def _cell(self, node: Node, cell: Cell) -> Outcome:
        outcome = await self._fleet.run_cell(node.node, cell)
        await self._evidence.append_cell(self._plan.name, node, cell, outcome)
        await self._advance(node, cell.id, outcome.outcome)
        return outcome

    async def _baseline(self, node: Node) -> None:
        for _ in range(IDLE_ROUNDS):
            await self._measure(node, beside_job=False)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fleet.run_cell(node.node, replace(COMPANION, id=f"{COMPANION.id}/{node.node}")))
            await asyncio.sleep(2.5)  # past its start-up
            for _ in range(BESIDE_ROUNDS):
                await self._measure(node, beside_job=True)

    async def _measure(self, node: Node, beside_job: bool) -> None:
        results = await measure(self._fleet, node.node, beside_job)
        await self._evidence.append_probes(results, Purpose.BASELINE)
        failed = [result.error for result in results if result.error]
        await self._advance(node, f"baseline {'beside a job' if beside_job else 'idle'}", failed[0] if failed else "ok")

    async def _advance(self, node: Node, cell: str, outcome: str) -> None:
        self._done += 1
        await self._events.put(Progress(self._done, self._total, node.node, cell, outcome))


def _turns(nodes: Iterable[Node]) -> list[list[Node]]:
    """Nodes that share cores, together."""
    groups: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        shared = [key for key, members in groups.items() if any(shares_cores(node, other) for other in members)]
        merged = [node, *(member for key in shared for member in groups.pop(key))]
        groups[id(node)] = merged
    return list(groups.values())
