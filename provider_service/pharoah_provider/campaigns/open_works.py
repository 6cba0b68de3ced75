"""The works of a campaign that are still to be done, and which node has taken which block."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_learning.opinions import LEAST_NODES
from pharoah_provider.campaigns.schedule import begun_again
from pharoah_provider.campaigns.works import Work, WorkKind, WorkState

Choose = Callable[[Iterable[list[Work]]], list[Work] | None]
"""Which block is next, of those that may be; None for none of them."""


def first_of(blocks: Iterable[list[Work]]) -> list[Work] | None:
    """The first block in the order of the plan."""
    return next(iter(blocks), None)


class OpenWorks:
    """Blocks in the order of the plan. A node finishes its block before it takes another one."""

    def __init__(self, works: Iterable[Work]) -> None:
        self._works = {work.number: work for work in works}
        self._out: set[int] = set()
        """Numbers of works that a node does now."""

    @property
    def total(self) -> int:
        """Works that count: those that were moved are in the plan twice."""
        return sum(work.state is not WorkState.MOVED for work in self._works.values())

    @property
    def done(self) -> int:
        return sum(work.state not in (WorkState.WAITING, WorkState.MOVED) for work in self._works.values())

    def cells(self) -> list[Cell]:
        """The cells of all works that are no degraded ones, in the order of the plan."""
        return [work.cell for work in self._works.values() if work.kind is WorkKind.CELL and work.cell]

    def left(self, *kinds: WorkKind) -> list[Work]:
        """What is not done, in the order of the plan: of these kinds, or of all."""
        waiting = (work for work in self._works.values() if work.state is WorkState.WAITING)
        return [work for work in waiting if not kinds or work.kind in kinds]

    def take(self, node: str, context: str, usable: int, measured: bool, choose: Choose = first_of) -> Work | None:
        """The next work for a node in a context; the block of the work has this node from now on.

        `usable`: how many nodes the context has for this campaign. Two of them run the blocks of each workload, where
        there are two, and all of them the pairs of each suspect, in turn. `measured`: whether baselines may begin,
        because no cell is left that a node could run. `choose`: which of the blocks that nobody has begun is next.
        """
        free = [work for work in self.left() if work.number not in self._out]
        own = [work for work in free if work.node == node and (work.cell or measured)]
        if own and own[0].cell:
            chosen: Work | None = own[0]
        else:
            owners = self._owners_of_subjects(context)
            mine = ([work] for work in own)
            blocks = blocks_of(work for work in free if not work.node and work.context_id == context)
            may = (block for block in blocks if self._may(node, block[0], usable, owners[block[0].subject]))
            chosen = next(iter(choose(chain(mine, may)) or ()), None)
        if chosen is None:
            return None
        for work in self.block(chosen.block):
            self._works[work.number] = replace(work, node=node)
        self._out.add(chosen.number)
        return self._works[chosen.number]

    def put_back(self, work: Work) -> None:
        """It was not done."""
        self._out.discard(work.number)

    def finish(self, work: Work, state: WorkState = WorkState.DONE) -> None:
        """It was done, with what is stated in `work`, or it will never be."""
        self._out.discard(work.number)
        node = self._works[work.number].node
        self._works[work.number] = replace(work, state=state, node=node)

    def of_suspect(self, suspect_id: str) -> list[Work]:
        """All works about one suspect, in the order of the plan."""
        return [work for work in self._works.values() if work.suspect == suspect_id]

    def owners(self) -> set[str]:
        """Nodes that have blocks which are not done."""
        return {work.node for work in self.left() if work.node}

    def release(self, node: str) -> list[Work]:
        """Let other nodes do the open blocks of a node that is gone; the new works, which are to be stored."""
        blocks = sorted({work.block for work in self.left(WorkKind.CELL, WorkKind.DEGRADED) if work.node == node})
        added: list[Work] = []
        for block in blocks:
            old = [work for work in self.block(block) if work.state not in (WorkState.SAME_CODE, WorkState.DROPPED)]
            new = begun_again(old, max(self._works) + 1, max(work.block for work in self._works.values()) + 1)
            for work in old:
                if work.state is WorkState.WAITING:
                    self.finish(work, WorkState.MOVED)
            fresh = [replace(work, state=WorkState.WAITING) for work in new]
            self._works |= {work.number: work for work in fresh}
            added += fresh
        return added

    def block(self, block: int) -> list[Work]:
        """The works of a block."""
        return [work for work in self._works.values() if work.block == block]

    def _owners_of_subjects(self, context_id: str) -> dict[str, dict[int, str]]:
        """Subject to its blocks in this context, each with the node that has taken it, or with an empty text."""
        found: dict[str, dict[int, str]] = defaultdict(dict)
        for work in self._works.values():
            if work.context_id == context_id and work.state is not WorkState.MOVED:
                found[work.subject][work.block] = work.node
        return found

    def _may(self, node: str, work: Work, usable: int, owners: dict[int, str]) -> bool:
        """Whether enough blocks of this subject are left for the other nodes that must run some.

        `owners`: all its blocks with their nodes."""
        taken = Counter(owner for owner in owners.values() if owner)
        if work.suspect:
            return taken[node] < math.ceil((taken.total() + 1) / max(1, usable))
        if work.kind is not WorkKind.CELL:
            return True
        others_needed = min(LEAST_NODES, usable) - len(taken.keys() | {node})
        return len(owners) - taken.total() > max(0, others_needed)


def blocks_of(works: Iterable[Work]) -> Iterator[list[Work]]:
    """Works by block, in their order."""
    found: dict[int, list[Work]] = defaultdict(list)
    for work in works:
        found[work.block].append(work)
    yield from found.values()
