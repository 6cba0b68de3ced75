"""One campaign while it runs: each free node of its executor does the next work of its block.

A node that goes away keeps its block for a while, because agents are restarted; then its blocks begin again on other
nodes of the context. A node that answers what it was not asked is excluded from the campaign; where attempts fail,
`failed_attempts` decides whether the work is the cause, or the node. Nodes that share cores take turns. Beside the
cells the provider dry-runs them itself (`own_fingerprints`). A suspect that is decided needs no more blocks, and a
campaign whose budget is used up ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from pharoah_benchmarks.campaign.cell import CellResult
from pharoah_learning.confirmations import Decision
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.agent_connection import NotBuiltThere, WrongAnswer
from pharoah_provider.campaigns.budget import Budget
from pharoah_provider.campaigns.campaign_time import campaign_time
from pharoah_provider.campaigns.executors import EXECUTORS, Executor
from pharoah_provider.campaigns.failed_attempts import MAX_ATTEMPTS, Consequence, FailedAttempts
from pharoah_provider.campaigns.not_run import NotRun, cause_of
from pharoah_provider.campaigns.open_works import OpenWorks, Place
from pharoah_provider.campaigns.same_code import same_code
from pharoah_provider.campaigns.suspect_pairs import with_its_pairs
from pharoah_provider.campaigns.works import Campaign, SuspectPair, Work, WorkKind, WorkResult, WorkState
from pharoah_provider.domain import Node
from pharoah_provider.own_fingerprints import OwnFingerprints
from pharoah_provider.storage.base import CampaignStore
from pharoah_serving.clock import Clock
from pharoah_serving.errors import NotReady

POLL_SECONDS = 1.0
"""How often a campaign looks whether a node has come back, or its host is free again."""
RETRY_POLLS = 10
"""A node is left alone for so many polls after an attempt that failed: it may lack memory or space for a moment."""


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
        suspects: Iterable[SuspectPair],
        executor: Executor,
        store: CampaignStore,
        in_use: Callable[[str], bool],
        report: Callable[[Progress], None],
        clock: Clock,
    ) -> None:
        """`in_use(node)`: whether a run may go on on the host of a node; nobody has agreed to cells beside a run.
        `report`: is called with all progress."""
        works = list(works)
        self._campaign, self._executor, self._store = campaign, executor, store
        self._in_use, self._report, self._clock = in_use, report, clock
        self._works, self._budget = OpenWorks(works), Budget(campaign.budget_seconds, works)
        self._now = campaign_time(clock, works)
        self._suspects = {suspect.suspect_id: suspect for suspect in suspects}
        self._contexts = {work.node: work.context_id for work in self._works.list_remaining() if work.node}
        """Node to its context: those that were there when the campaign was planned, and those that have come since."""
        self._began = clock.steady()
        self._looked = self._began
        """When it looked for nodes last, steady seconds. Whether a node is gone is decided for this time, so that all
        steps of one round agree."""
        self._last_there = dict.fromkeys(self._contexts, self._began)
        """Node to when it was connected last, or the campaign began or went on; steady seconds."""
        self._excluded: dict[str, NotReady] = {}
        """Nodes that are excluded from this campaign, and why."""
        self._failures = FailedAttempts()
        self._usable_nodes = Counter[str]()
        """Context to how many of its nodes are there, or may be back soon."""

    async def run(self, own: OwnFingerprints) -> bool:
        """Returns when all works are done, or when the budget is used up; whether all are done. Raises NotReady when no
        node can do what is left."""
        for suspect_id in self._suspects:
            await self._update_suspect(suspect_id)
        cells = [work.cell for work in self._works.list_remaining(WorkKind.CELL) if work.cell]
        if self._campaign.skip_same_code:
            await own.complete(cells)
            everything = self._works.cells()
            await self._end_same_code(await asyncio.to_thread(same_code, everything, await own.find(everything)))
        async with asyncio.TaskGroup() as group:
            group.create_task(own.complete(cells))
            group.create_task(self._run_works())
        for suspect_id in self._suspects:  # works that nobody could do may have been its last ones
            await self._update_suspect(suspect_id)
        return not self._works.any_left()

    async def _end_same_code(self, same: Mapping[str, str]) -> None:
        """Set aside works that cannot differ from others. `same`: content of a cell, and the environment that runs."""
        works: dict[str, list[Work]] = defaultdict(list)
        for work in self._works.list_remaining(WorkKind.CELL):
            if work.cell and work.cell.content in same:
                works[same[work.cell.content]].append(work.set_aside(NotRun.SAME_CODE))
        for environment, ended in works.items():
            await self._set_aside(ended, f"it executes the same code as in {environment}")

    async def _run_works(self) -> None:
        busy: dict[asyncio.Task[None], Node] = {}
        try:
            while self._works.any_left():
                await self._look_for_nodes()
                measured = self._all_measured()
                for node in self._free_nodes(busy.values()):
                    # Baselines one at a time: guests of one host take time from each other when all are busy.
                    if busy and measured:
                        break
                    if (work := self._next_work(node, measured)) is not None:
                        await self._store.assign_block(self._campaign.campaign_id, work)
                        busy[asyncio.create_task(self._do(node, work))] = node
                if not busy:
                    if self._is_spent():
                        return
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

    def _next_work(self, node: Node, measured: bool) -> Work | None:
        """The next work for a node, which has it from now on; None without one."""
        context, now = self._campaign.context_of(node), self._now()
        usable = self._usable_nodes[context]

        def choose(blocks: Iterable[list[Work]]) -> list[Work] | None:
            return self._budget.choose(blocks, usable, now)

        return self._works.take(node.node, context, usable, measured, choose)

    def _is_spent(self) -> bool:
        """Whether nothing that a node which is there could begin can end within the budget, so that the campaign is
        over. Where no node is there, all that is left counts."""
        places = self._works.places()
        there = [place for place in places if not self._is_unattended(place)] or places
        return bool(there) and not self._can_go_on(there)

    def _can_go_on(self, places: Iterable[Place]) -> bool:
        """Whether what is not done at one of these places is a block of cells that was begun, which is completed, or
        can end within the budget."""
        places = list(places)
        if any(place.node and self._works.has_cells(place) for place in places):
            return True
        blocks = chain.from_iterable(map(self._works.blocks_at, places))
        return self._budget.choose(blocks, 1, self._now()) is not None

    def _free_nodes(self, busy: Collection[Node]) -> Iterator[Node]:
        """Nodes that may be given work, those of the rarest context first; `busy` may grow meanwhile."""
        contexts = {node: self._campaign.context_of(node) for node in self._executor.nodes()}
        rarity = Counter(contexts.values())
        busy_on_host, busy_names, counted = defaultdict[str, list[Node]](list), set[str](), 0
        for node in sorted(contexts, key=lambda node: (rarity[contexts[node]], node.node)):
            if len(busy) > counted:
                for other in islice(busy, counted, None):
                    busy_on_host[other.host_id].append(other)
                    busy_names.add(other.node)  # it may have been started again, and then its host has another id
                counted = len(busy)
            shared = node.node in busy_names or any(map(node.shares_cores, busy_on_host[node.host_id]))
            if node.node not in self._excluded and not shared and not self._in_use(node.node):
                yield node

    async def _look_for_nodes(self) -> None:
        """Note who is there; what nodes that are gone have left behind begins again elsewhere, or is set aside."""
        self._looked = self._clock.steady()
        for node in self._executor.nodes():
            self._last_there[node.node] = self._looked
            self._contexts[node.node] = self._campaign.context_of(node)
        self._usable_nodes = Counter(own for node, own in self._contexts.items() if not self._is_gone(node))
        campaign = self._campaign.campaign_id
        for owner in filter(self._is_gone, self._works.owners()):
            if self._usable(self._contexts[owner]):
                blocks = set(self._works.list_begun(owner))
                self._budget.move(blocks)
                await self._store.move_blocks(campaign, blocks, self._works.release(owner))
        if any(not self._is_gone(node) for node in self._contexts):
            cells_left = self._works.any_left(WorkKind.CELL, WorkKind.DEGRADED)
            for place in self._works.places():
                # Nobody else can measure a node that is gone; the campaign of the others need not wait for it.
                needless = place.node and not cells_left and self._is_gone(place.node)
                works = self._works.at(place) if needless or self._has_only_rejected(place) else []
                if works:
                    aside = [work.set_aside(NotRun.NODES_LEFT) for work in works]
                    await self._set_aside(aside, "all nodes that could do it have left the campaign")

    def _has_only_rejected(self, place: Place) -> bool:
        """Whether all nodes at a place have answered what they were not asked. A node that is excluded because it fails
        may do its works when the campaign is resumed."""
        candidates = self._candidates(place) if self._excluded else []
        return bool(candidates) and all(isinstance(self._excluded.get(node), WrongAnswer) for node in candidates)

    async def _set_aside(self, works: Sequence[Work], reason: str) -> None:
        """Nobody does these works until the campaign is resumed; each has its cause."""
        await self._store.set_aside(self._campaign.campaign_id, works, reason)
        for work in works:
            self._works.finish(work, WorkState.NOT_RUN)

    def _all_measured(self) -> bool:
        """Whether no cell is left that a node could run within the budget."""
        places = (place for place in self._works.places() if self._works.has_cells(place))
        return not self._can_go_on(place for place in places if not self._is_unattended(place))

    def _is_unattended(self, place: Place) -> bool:
        """Whether no node of a place is there. Nodes that are not known yet have as long to come as others."""
        candidates = self._candidates(place)
        return all(self._is_gone(node) for node in candidates) if candidates else self._has_waited()

    def _has_waited(self) -> bool:
        """Whether all nodes had time to come since the campaign began or went on."""
        return self._looked - self._began > self._executor.away_seconds

    def _is_gone(self, node: str) -> bool:
        return node in self._excluded or self._looked - self._last_there[node] > self._executor.away_seconds

    def _usable(self, context_id: str) -> list[str]:
        """Nodes of a context that are there, or may be back soon."""
        return [node for node, own in self._contexts.items() if own == context_id and not self._is_gone(node)]

    def _candidates(self, place: Place) -> list[str]:
        """The nodes that may do what is not done at a place."""
        if place.node:
            return [place.node]
        return [node for node, context_id in self._contexts.items() if context_id == place.context_id]

    def _check_hope(self) -> None:
        """Raises NotReady when nobody was there for long who could do what is left."""
        resume = f"`pharoah-provider campaign resume {self._campaign.campaign_id}`"
        first = next(iter(self._excluded.values()), None)
        if self._excluded and self._excluded.keys() == self._contexts.keys():
            raise NotReady(f"every node has left the campaign; the first: {first}; {resume} goes on with them")
        if self._works.any_left() and self._has_waited() and all(map(self._is_unattended, self._works.places())):
            left = self._works.list_remaining()
            contexts = ", ".join(sorted({work.context_id for work in left} - {""}))
            where = (
                f"node of context {contexts}" if contexts else f"process of the executor {self._campaign.executor.name}"
            )
            raise NotReady(
                f"no {where} is connected to do the {len(left)} works that are left"
                + (f" (the first that has left the campaign: {first})" if first else "")
                + f"; {EXECUTORS[self._campaign.executor.name].remedy}, then {resume}"
            )

    async def _do(self, node: Node, work: Work) -> None:
        """Do one work and store its result. A node that cannot leaves the work as it was."""
        began_at, order_id = self._now(), self._campaign.order_id(work)
        self._budget.begin(work, self._works.block(work.block), began_at)
        try:
            result = await self._executor.do(node, work, order_id)
        except* NotReady as failures:
            self._budget.end(work, self._now())
            await self._record_failure(node, work, next(iter(_leaves(failures))))
        else:
            done = replace(work, began_at=began_at, ended_at=self._now(), state=WorkState.DONE)
            await self._finish(node, done, result)
            self._executor.release(node.node, order_id)

    async def _finish(self, node: Node, done: Work, result: WorkResult) -> None:
        """Store the result of a work together with the fact that it is done."""
        if isinstance(result, CellResult):
            what, done = str(result.outcome), replace(done, outcome=result.outcome)
        else:
            what = next((one.error for one in result if one.error), Outcome.OK)
        await self._store.finish_work(self._campaign, done, node, result)
        self._budget.end(done, done.ended_at)
        self._works.finish(done)
        self._failures.note_success(node.node)
        self._report_work(node.node, done.name, what)
        if done.suspect and all(work.state is WorkState.DONE for work in self._works.block(done.block)):
            await self._update_suspect(done.suspect)

    async def _update_suspect(self, suspect_id: str) -> None:
        """Look at what the blocks of a suspect say, and store it. One that is decided needs no further block; those
        that were begun are completed."""
        before, works = self._suspects[suspect_id], self._works.list_of_suspect(suspect_id)
        now = self._suspects[suspect_id] = with_its_pairs(before, works)
        needless: list[Work] = []
        if now.confirmation.decision is not Decision.OPEN:
            waiting = (work for work in works if work.state is WorkState.WAITING and not work.node)
            needless = [work.set_aside(NotRun.DECIDED) for work in waiting]
        if now != before or needless:
            await self._store.set_confirmation(self._campaign.campaign_id, now, needless)
        for work in needless:
            self._works.finish(work, WorkState.NOT_RUN)

    async def _record_failure(self, node: Node, work: Work, error: NotReady) -> None:
        if isinstance(error, NotBuiltThere):  # other nodes may have what this one lacks; their blocks go on
            await self._give_up(node, work, NotRun.NOT_BUILT, str(error))
            return
        wrong = isinstance(error, WrongAnswer)
        consequence = Consequence.EXCLUDE_NODE if wrong else self._failures.count(node.node, work)
        if consequence is not Consequence.TRY_AGAIN:  # its agent may still work on it
            self._executor.release(node.node, self._campaign.order_id(work))
        if consequence is Consequence.SET_WORK_ASIDE:
            reason = f"{MAX_ATTEMPTS} attempts have failed; the last: {error}"
            await self._give_up(node, work, cause_of(error), reason)
            return
        self._works.put_back(work)
        if consequence is Consequence.EXCLUDE_NODE:
            self._excluded[node.node] = error
            self._report_work(node.node, "leaves the campaign", str(error))
        else:
            await asyncio.sleep(RETRY_POLLS * POLL_SECONDS)

    async def _give_up(self, node: Node, work: Work, cause: NotRun, reason: str) -> None:
        """A node does not do this one work now; the others of its block go on."""
        await self._set_aside([work.set_aside(cause)], reason)
        self._report_work(node.node, work.name, f"{cause}: {reason}")

    def _report_work(self, node: str, what: str, outcome: str) -> None:
        self._report(Progress(self._works.done, self._works.total, node, what, outcome))


def _leaves(failures: BaseExceptionGroup[NotReady]) -> Iterator[NotReady]:
    """The exceptions of a group and of the groups in it."""
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            yield from _leaves(failure)
        else:
            yield failure
