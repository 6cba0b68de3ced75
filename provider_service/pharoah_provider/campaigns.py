"""Campaigns: every cell in every context that is connected, then degraded runs, then benchmark baselines.

Beside them the provider dry-runs the cells itself (`own_fingerprints`). A node whose agent goes away, or answers what
it was not asked, leaves the campaign, and the other nodes of its context run its cells. A campaign ends with
an error only when every node has left it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pharoah_benchmarks.campaign.cell import Cell, Degradation
from pharoah_benchmarks.campaign.plan import CampaignPlan
from pharoah_protocol.vocabulary import Fault, Outcome, Purpose
from pharoah_provider.cell_queue import CellQueue
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet
from pharoah_provider.micro_benchmarks import measure
from pharoah_provider.own_fingerprints import OwnFingerprints
from pharoah_provider.storage.base import EvidenceStore
from pharoah_serving.errors import NotReady

IDLE_ROUNDS, BESIDE_ROUNDS = 2, 2
"""Rounds of micro-benchmarks per node, idle and beside a job."""
FREE_POLL_SECONDS = 1.0
"""How often a campaign looks whether the host of a node is free again."""
COMPANION_START_SECONDS = 2.5
"""Time for the companion to start before the first round beside it."""
COMPANION = Cell("baseline/companion", "gpt", {}, seconds=9.0, degradation=Degradation(Fault.NONE))
"""The cell that trains while the baseline beside a job is measured."""


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

    def __init__(
        self,
        plan: CampaignPlan,
        fleet: Fleet,
        evidence: EvidenceStore,
        own: OwnFingerprints,
        in_use: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`in_use(node)`: whether a run may go on on the host of a node. Raises NotReady without a node that is free:
        nobody has agreed to cells of a campaign beside a run."""
        self._plan, self._fleet, self._evidence, self._own, self._in_use = plan, fleet, evidence, own, in_use
        self._nodes = [node for node in fleet.connected() if not in_use(node.node)]
        if not self._nodes:
            raise NotReady(
                "runs go on on the hosts of all connected nodes; wait until they have ended"
                if fleet.connected()
                else "no agent is connected: start pharoah-agent on the nodes first"
            )
        self._hosts = _turns(self._nodes)
        self._events: asyncio.Queue[Progress | BaseException | None] = asyncio.Queue()
        self._done = 0
        self._left: dict[str, NotReady] = {}
        """Nodes that have left the campaign, and why."""
        names: dict[str, list[str]] = defaultdict(list)
        for node in self._nodes:
            names[node.context_id].append(node.node)
        self._rarity = {context: len(found) for context, found in names.items()}
        self._queues = {context: CellQueue(plan.cells, found) for context, found in names.items()}
        self._degraded = list(reversed(plan.degraded))
        cells = sum(len(queue) for queue in self._queues.values())
        self._total = cells + len(plan.degraded) + len(self._nodes) * (IDLE_ROUNDS + BESIDE_ROUNDS)

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
            async with asyncio.TaskGroup() as group:
                group.create_task(self._own.complete(self._plan.cells))
                group.create_task(self._run_cells())
            for node in self._nodes:
                # One at a time: nodes that are guests of one host take time from each other when all are busy.
                await self._as_long_as_there(node, self._baseline(node))
            if len(self._left) == len(self._nodes):
                raise NotReady(f"every node has left the campaign; the first: {next(iter(self._left.values()))}")
            await self._events.put(None)
        except BaseExceptionGroup as failures:
            await self._events.put(failures.exceptions[0])
        except Exception as failure:  # noqa: BLE001 - whoever reads the progress raises it
            await self._events.put(failure)

    async def _run_cells(self) -> None:
        """All cells; once more when a node has left, for the cells that it did not run."""
        gone = -1
        while gone != len(self._left):
            gone = len(self._left)
            async with asyncio.TaskGroup() as group:
                for nodes in self._hosts:
                    group.create_task(self._work(nodes))

    async def _work(self, nodes: list[Node]) -> None:
        """One set of cores: cells of its nodes' contexts, rarest context first, then degraded runs."""
        for node in sorted(nodes, key=lambda node: self._rarity[node.context_id]):
            queue = self._queues[node.context_id]
            while node.node not in self._left and (cell := queue.take(node.node)) is not None:
                if not await self._as_long_as_there(node, self._cell(node, cell)):
                    queue.give_up(node.node, cell)
        # Degraded runs need the plainest node there is: the context most nodes share.
        there = [node for node in nodes if node.node not in self._left]
        plain = max(there, key=lambda node: self._rarity[node.context_id], default=None)
        while plain is not None and self._degraded and plain.node not in self._left:
            cell = self._degraded.pop()
            if not await self._as_long_as_there(plain, self._cell(plain, cell)):
                self._degraded.append(cell)

    async def _as_long_as_there(self, node: Node, work: Coroutine[Any, Any, None]) -> bool:
        """Whether a node has done this; one that has not leaves the campaign."""
        if node.node in self._left:
            work.close()
            return False
        try:
            await work
        except* NotReady as failures:
            self._left[node.node] = next(error for error in _leaves(failures) if isinstance(error, NotReady))
            why = str(self._left[node.node])
            await self._events.put(Progress(self._done, self._total, node.node, "leaves the campaign", why))
        return node.node not in self._left

    async def _free(self, node: Node) -> None:
        """Wait while a run goes on on the host of a node."""
        while self._in_use(node.node):
            await asyncio.sleep(FREE_POLL_SECONDS)

    async def _cell(self, node: Node, cell: Cell) -> None:
        await self._free(node)
        outcome = await self._fleet.run_cell(node.node, cell)
        await self._evidence.append_cell(self._plan.name, node, cell, outcome)
        await self._advance(node, cell.id, outcome.outcome)

    async def _baseline(self, node: Node) -> None:
        for _ in range(IDLE_ROUNDS):
            await self._free(node)
            await self._measure(node, beside_job=False)
        await self._free(node)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fleet.run_cell(node.node, replace(COMPANION, id=f"{COMPANION.id}/{node.node}")))
            await asyncio.sleep(COMPANION_START_SECONDS)
            for _ in range(BESIDE_ROUNDS):
                await self._measure(node, beside_job=True)

    async def _measure(self, node: Node, beside_job: bool) -> None:
        results = await measure(self._fleet, node.node, beside_job)
        await self._evidence.append_probes(results, Purpose.BASELINE)
        failed = [result.error for result in results if result.error]
        await self._advance(
            node, f"baseline {'beside a job' if beside_job else 'idle'}", failed[0] if failed else Outcome.OK
        )

    async def _advance(self, node: Node, cell: str, outcome: str) -> None:
        self._done += 1
        await self._events.put(Progress(self._done, self._total, node.node, cell, outcome))


def _leaves(failures: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The exceptions of a group and of the groups in it."""
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            yield from _leaves(failure)
        else:
            yield failure


def _turns(nodes: Iterable[Node]) -> list[list[Node]]:
    """Nodes that share cores, together."""
    groups: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        shared = [key for key, members in groups.items() if any(node.shares_cores(other) for other in members)]
        merged = [node, *(member for key in shared for member in groups.pop(key))]
        groups[id(node)] = merged
    return list(groups.values())
