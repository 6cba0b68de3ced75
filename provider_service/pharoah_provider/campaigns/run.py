"""One campaign while it runs: each free node does the next work of its block.

A node whose agent goes away keeps its block for a while, because agents are restarted; then its blocks begin again on
other nodes of the context. A node whose agent answers what it was not asked is excluded from the campaign. Nodes that
share cores take turns. Beside the cells the provider dry-runs them itself (`own_fingerprints`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pharoah_benchmarks.campaign.cell import Cell, Degradation
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.campaigns.open_works import OpenWorks
from pharoah_provider.campaigns.works import Campaign, Work, WorkKind, WorkState
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet, WrongAnswer
from pharoah_provider.micro_benchmarks import measure
from pharoah_provider.own_fingerprints import OwnFingerprints
from pharoah_provider.storage.base import CampaignStore
from pharoah_serving.clock import Clock
from pharoah_serving.errors import NotReady

IDLE_ROUNDS, BESIDE_ROUNDS = 2, 2
"""Rounds of micro-benchmarks per node, idle and beside a job."""
POLL_SECONDS = 1.0
"""How often a campaign looks whether a node has come back, or its host is free again."""
AWAY_SECONDS = 60.0
"""How long a node that is away keeps its block: an agent that is restarted is back within seconds."""
MOST_ATTEMPTS = 3
"""A node that has not done the same work so often is excluded: the work may end its agent."""
COMPANION_START_SECONDS = 2.5
"""Time for the companion to start before the first round beside it."""
COMPANION = Cell("baseline/companion", "gpt", {}, seconds=9.0, degradation=Degradation())
"""The cell that trains while the baseline beside a job is measured."""


@dataclass(frozen=True)
class Progress:
    """One finished work, or a node that has left, and how many works are done."""

    done: int
    total: int
    node: str
    cell: str
    outcome: str


class CampaignRun:
    """Does the works of one campaign that are left."""

    def __init__(
        self,
        campaign: Campaign,
        works: Iterable[Work],
        fleet: Fleet,
        store: CampaignStore,
        in_use: Callable[[str], bool],
        report: Callable[[Progress], None],
        clock: Clock,
    ) -> None:
        """`in_use(node)`: whether a run may go on on the host of a node; nobody has agreed to cells beside a run.
        `report`: is called with all progress."""
        self._campaign, self._fleet, self._store = campaign, fleet, store
        self._in_use, self._report, self._clock = in_use, report, clock
        self._works = OpenWorks(works)
        self._contexts = {work.node: work.context_id for work in self._works.left() if work.node}
        """Node to its context: those that were there when the campaign was planned, and those that have come since."""
        self._last_there = dict.fromkeys(self._contexts, clock.steady())
        """Node to when it was connected last, or the campaign began or went on; steady seconds."""
        self._excluded: dict[str, NotReady] = {}
        """Nodes that are excluded from this campaign, and why."""
        self._attempts: Counter[tuple[str, int]] = Counter()
        """Attempts of a node to do a work (its number) that failed."""

    async def run(self, own: OwnFingerprints) -> None:
        """Returns when all works are done. Raises NotReady when no node can do what is left."""
        cells = [work.cell for work in self._works.left(WorkKind.CELL) if work.cell]
        async with asyncio.TaskGroup() as group:
            group.create_task(own.complete(cells))
            group.create_task(self._run_works())

    async def _run_works(self) -> None:
        busy: dict[asyncio.Task[None], Node] = {}
        try:
            while self._works.left():
                await self._look_for_nodes()
                measured = self._all_measured()
                for node in self._free_nodes(busy.values()):
                    # Baselines one at a time: guests of one host take time from each other when all are busy.
                    if busy and measured:
                        break
                    if (work := self._works.take(node, len(self._usable(node.context_id)), measured)) is not None:
                        await self._store.assign_block(self._campaign.campaign_id, work)
                        busy[asyncio.create_task(self._do(node, work))] = node
                if not busy:
                    self._check_hope()
                    await asyncio.sleep(POLL_SECONDS)
                    continue
                finished, _ = await asyncio.wait(busy, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                for task in finished:
                    del busy[task]
                    await task
        finally:
            for task in busy:
                task.cancel()
            if busy:
                await asyncio.wait(busy)

    def _free_nodes(self, busy: Iterable[Node]) -> Iterator[Node]:
        """Nodes that may be given work, those of the rarest context first; `busy` may grow meanwhile."""
        connected = self._fleet.connected()
        rarity = Counter(node.context_id for node in connected)
        for node in sorted(connected, key=lambda node: (rarity[node.context_id], node.node)):
            shared = any(node.node == other.node or node.shares_cores(other) for other in busy)
            if node.node not in self._excluded and not shared and not self._in_use(node.node):
                yield node

    async def _look_for_nodes(self) -> None:
        """Note who is there; what nodes that are gone have left behind begins again elsewhere, or is dropped."""
        for node in self._fleet.connected():
            self._last_there[node.node] = self._clock.steady()
            self._contexts[node.node] = node.context_id
        campaign = self._campaign.campaign_id
        for owner in filter(self._is_gone, self._works.owners()):
            if self._usable(self._contexts[owner]):
                blocks = {
                    work.block for work in self._works.left(WorkKind.CELL, WorkKind.DEGRADED) if work.node == owner
                }
                await self._store.move_blocks(campaign, blocks, self._works.release(owner))
        somebody = any(not self._is_gone(node) for node in self._contexts)
        for work in self._works.left():
            candidates = self._candidates(work)
            excluded = bool(candidates) and all(node in self._excluded for node in candidates)
            # Nobody else can measure a node that is gone; the campaign of the others need not wait for it.
            if excluded or (not work.cell and somebody and self._all_measured() and self._is_gone(work.node)):
                await self._store.drop_work(campaign, work)
                self._works.finish(work, WorkState.DROPPED)

    def _all_measured(self) -> bool:
        """Whether no cell is left that a node could run."""
        left = self._works.left(WorkKind.CELL, WorkKind.DEGRADED)
        return all(self._is_gone(node) for work in left for node in self._candidates(work))

    def _is_gone(self, node: str) -> bool:
        return node in self._excluded or self._clock.steady() - self._last_there[node] > AWAY_SECONDS

    def _usable(self, context_id: str) -> list[str]:
        """Nodes of a context that are there, or may be back soon."""
        return [node for node, own in self._contexts.items() if own == context_id and not self._is_gone(node)]

    def _candidates(self, work: Work) -> list[str]:
        """The nodes that may do a work."""
        if work.node:
            return [work.node]
        return [node for node, context_id in self._contexts.items() if context_id == work.context_id]

    def _check_hope(self) -> None:
        """Raises NotReady when nobody was there for long who could do what is left."""
        left = self._works.left()
        if self._excluded and self._excluded.keys() == self._contexts.keys():
            raise NotReady(f"every node has left the campaign; the first: {next(iter(self._excluded.values()))}")
        if left and all(self._is_gone(node) for work in left for node in self._candidates(work)):
            contexts = ", ".join(sorted({work.context_id for work in left}))
            raise NotReady(
                f"no node of context {contexts} is connected to do the {len(left)} works that are left; start "
                f"pharoah-agent there, then `pharoah-provider campaign resume {self._campaign.campaign_id}`"
            )

    async def _do(self, node: Node, work: Work) -> None:
        """Do one work and store its result. A node that cannot leaves the work as it was."""
        try:
            outcome = await (self._cell(node, work, work.cell) if work.cell else self._baseline(node, work))
        except* NotReady as failures:
            self._failed(node, work, next(iter(_leaves(failures))))
        else:
            self._works.finish(work)
            self._report_work(node.node, work.name, outcome)

    def _failed(self, node: Node, work: Work, error: NotReady) -> None:
        self._works.put_back(work)
        self._attempts[node.node, work.number] += 1
        if isinstance(error, WrongAnswer) or self._attempts[node.node, work.number] >= MOST_ATTEMPTS:
            self._excluded[node.node] = error
            self._report_work(node.node, "leaves the campaign", str(error))

    def _report_work(self, node: str, what: str, outcome: str) -> None:
        self._report(Progress(self._works.done, self._works.total, node, what, outcome))

    async def _cell(self, node: Node, work: Work, cell: Cell) -> str:
        order_id = self._campaign.order_id(work)
        result = await self._fleet.run_cell(node.node, cell, order_id)
        await self._store.finish_cell(self._campaign, work, node, cell, result)
        self._fleet.release(node.node, order_id)
        return result.outcome

    async def _baseline(self, node: Node, work: Work) -> str:
        results: list[BenchmarkResult] = []
        for _ in range(IDLE_ROUNDS):
            results += await measure(self._fleet, node.node, beside_job=False)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fleet.run_cell(node.node, replace(COMPANION, id=f"{COMPANION.id}/{node.node}")))
            await asyncio.sleep(COMPANION_START_SECONDS)
            for _ in range(BESIDE_ROUNDS):
                results += await measure(self._fleet, node.node, beside_job=True)
        await self._store.finish_baseline(self._campaign, work, results)
        return next((result.error for result in results if result.error), Outcome.OK)


def _leaves(failures: BaseExceptionGroup[NotReady]) -> Iterator[NotReady]:
    """The exceptions of a group and of the groups in it."""
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            yield from _leaves(failure)
        else:
            yield failure
