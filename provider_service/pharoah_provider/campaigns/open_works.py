"""The works of a campaign that are still to be done, and which node has taken which block.

A campaign has up to a hundred thousand works, and is looked at whenever one has ended. So what is asked for then is
kept beside the works: it costs no more with more works.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_learning.opinions import MIN_NODES
from pharoah_provider.campaigns.schedule import begin_again
from pharoah_provider.campaigns.works import Work, WorkKind, WorkState

Choose = Callable[[Iterable[list[Work]]], list[Work] | None]
"""Which block is next, of those that may be; None for none of them."""


def first_of(blocks: Iterable[list[Work]]) -> list[Work] | None:
    """The first block in the order of the plan."""
    return next(iter(blocks), None)


class Place(NamedTuple):
    """Who may do a work: the node that has taken its block, else each node of its context."""

    node: str
    context_id: str
    """Empty where there is a node: it does its blocks in whatever context it is now."""

    @classmethod
    def from_work(cls, work: Work) -> Place:
        return cls(work.node, "" if work.node else work.context_id)


@dataclass
class _Subject:
    """The blocks of one subject in one context, without those that were moved as a whole."""

    blocks: int = 0
    taken: Counter[str] = field(default_factory=Counter)
    """Node to how many of them it has taken."""


class OpenWorks:
    """Blocks in the order of the plan. A node finishes its block before it takes another one."""

    def __init__(self, works: Iterable[Work]) -> None:
        self._works: dict[int, Work] = {}
        self._out: set[int] = set()
        """Numbers of works that a node does now."""
        self._blocks: dict[int, list[int]] = defaultdict(list)
        """Block to the numbers of its works."""
        self._suspects: dict[str, list[int]] = defaultdict(list)
        """Suspect to the numbers of the works about it."""
        self._waiting: dict[Place, dict[int, dict[int, None]]] = {}
        """Place to its blocks that are not done, each with the numbers of its works that wait."""
        self._left: Counter[WorkKind] = Counter()
        """How many works of each kind wait."""
        self._moved = 0
        self._subjects: dict[tuple[str, str], _Subject] = defaultdict(_Subject)
        """Context and subject to what is counted of them."""
        self._add(works)

    @property
    def total(self) -> int:
        """Works that count: those that were moved are in the plan twice."""
        return len(self._works) - self._moved

    @property
    def done(self) -> int:
        return self.total - self._left.total()

    def cells(self) -> list[Cell]:
        """The cells of all works that are no degraded ones, in the order of the plan."""
        return [work.cell for work in self._works.values() if work.kind is WorkKind.CELL and work.cell]

    def list_remaining(self, *kinds: WorkKind) -> list[Work]:
        """What is not done, in the order of the plan: of these kinds, or of all. It takes time for each work."""
        waiting = (work for work in self._works.values() if work.state is WorkState.WAITING)
        return [work for work in waiting if not kinds or work.kind in kinds]

    def any_left(self, *kinds: WorkKind) -> bool:
        """Whether something is not done: of these kinds, or of all."""
        return any(self._left[kind] for kind in kinds or WorkKind)

    def places(self) -> list[Place]:
        """Who may do what is not done."""
        return list(self._waiting)

    def blocks_at(self, place: Place) -> Iterator[list[Work]]:
        """What is not done at a place, by block, in the order of the plan. No work may change meanwhile."""
        for numbers in self._numbers_at(place):
            yield [self._works[number] for number in numbers]

    def at(self, place: Place) -> list[Work]:
        """What is not done at a place, in the order of the plan."""
        return list(chain.from_iterable(self.blocks_at(place)))

    def has_cells(self, place: Place) -> bool:
        """Whether cells are not done at a place."""
        return any(self._works[next(iter(numbers))].cell for numbers in self._numbers_at(place))

    def take(self, node: str, context: str, usable: int, measured: bool, choose: Choose = first_of) -> Work | None:
        """The next work for a node in a context; the block of the work has this node from now on.

        `usable`: how many nodes the context has for this campaign. Two of them run the blocks of each workload, where
        there are two, and all of them the pairs of each suspect, in turn. `measured`: whether baselines may begin,
        because no cell is left that a node could run. `choose`: which of the blocks that nobody has begun is next.
        """
        own = self._own(node, measured)
        chosen = next(own, None)
        if chosen is None or not chosen.cell:
            mine = ([work] for work in chain([chosen] if chosen else [], own))
            may = (block for block in self.blocks_at(Place("", context)) if self._may(node, block[0], usable))
            chosen = next(iter(choose(chain(mine, may)) or ()), None)
        if chosen is None:
            return None
        if chosen.node != node:
            self._assign(chosen.block, node)
        self._out.add(chosen.number)
        return self._works[chosen.number]

    def put_back(self, work: Work) -> None:
        """It was not done."""
        self._out.discard(work.number)

    def finish(self, work: Work, state: WorkState = WorkState.DONE) -> None:
        """It was done, with what is stated in `work`, or it will never be."""
        self._out.discard(work.number)
        self._put(replace(work, state=state, node=self._works[work.number].node))

    def list_of_suspect(self, suspect_id: str) -> list[Work]:
        """All works about one suspect, in the order of the plan."""
        return [self._works[number] for number in self._suspects.get(suspect_id, ())]

    def owners(self) -> set[str]:
        """Nodes that have blocks which are not done."""
        return {place.node for place in self._waiting if place.node}

    def list_begun(self, node: str) -> list[int]:
        """The blocks of cells that a node has taken and that are not done."""
        first = (self._works[next(iter(numbers))] for numbers in self._numbers_at(Place(node, "")))
        return [work.block for work in first if work.cell]

    def release(self, node: str) -> list[Work]:
        """Let other nodes do the open blocks of a node that is gone; the new works, which are to be stored."""
        added: list[Work] = []
        for block in sorted(self.list_begun(node)):
            old = [work for work in self.block(block) if work.state is not WorkState.NOT_RUN]
            new = begin_again(old, max(self._works) + 1, max(self._blocks) + 1)
            self._count(block, -1)
            for work in old:
                if work.state is WorkState.WAITING:
                    self.finish(work, WorkState.MOVED)
            self._count(block, 1)
            fresh = [replace(work, state=WorkState.WAITING) for work in new]
            self._add(fresh)
            added += fresh
        return added

    def block(self, block: int) -> list[Work]:
        """The works of a block."""
        return [self._works[number] for number in self._blocks.get(block, ())]

    def _own(self, node: str, measured: bool) -> Iterator[Work]:
        """The works of a node that it may do now, in the order of the plan."""
        for numbers in self._numbers_at(Place(node, "")):
            works = (self._works[number] for number in numbers if number not in self._out)
            yield from (work for work in works if work.cell or measured)

    def _numbers_at(self, place: Place) -> Iterable[Iterable[int]]:
        """The numbers of what is not done at a place, by block, in the order of the plan."""
        blocks = self._waiting.get(place, {}).values()
        return sorted(blocks, key=lambda numbers: next(iter(numbers))) if place.node else blocks

    def _may(self, node: str, work: Work, usable: int) -> bool:
        """Whether enough blocks of this subject are left for the other nodes that must run some."""
        subject = self._subjects[work.context_id, work.subject]
        taken = subject.taken
        if work.suspect:
            return taken[node] < math.ceil((taken.total() + 1) / max(1, usable))
        if work.kind is not WorkKind.CELL:
            return True
        others_needed = min(MIN_NODES, usable) - len(taken.keys() | {node})
        return subject.blocks - taken.total() > max(0, others_needed)

    def _assign(self, block: int, node: str) -> None:
        self._count(block, -1)
        for work in self.block(block):
            self._put(replace(work, node=node))
        self._count(block, 1)

    def _add(self, works: Iterable[Work]) -> None:
        """Add new works, which come last in the order of the plan."""
        added = set()
        for work in works:
            self._blocks[work.block].append(work.number)
            if work.suspect:
                self._suspects[work.suspect].append(work.number)
            self._works[work.number] = work
            self._index(work)
            added.add(work.block)
        for block in added:
            self._count(block, 1)

    def _put(self, work: Work) -> None:
        """Replace a work."""
        old = self._works[work.number]
        if old.state is WorkState.WAITING:
            self._left[old.kind] -= 1
            blocks = self._waiting[Place.from_work(old)]
            del blocks[old.block][old.number]
            if not blocks[old.block]:
                del blocks[old.block]
            if not blocks:
                del self._waiting[Place.from_work(old)]
        elif old.state is WorkState.MOVED:
            self._moved -= 1
        self._works[work.number] = work
        self._index(work)

    def _index(self, work: Work) -> None:
        if work.state is WorkState.WAITING:
            self._left[work.kind] += 1
            self._waiting.setdefault(Place.from_work(work), {}).setdefault(work.block, {})[work.number] = None
        elif work.state is WorkState.MOVED:
            self._moved += 1

    def _count(self, block: int, sign: int) -> None:
        """Count a block among those of its subject, or count it no longer before it changes. One whose works were all
        moved does not count."""
        there = [work for work in self.block(block) if work.state is not WorkState.MOVED]
        if not there:
            return
        subject, node = self._subjects[there[-1].context_id, there[-1].subject], there[-1].node
        subject.blocks += sign
        if node:
            subject.taken[node] += sign
            if not subject.taken[node]:
                del subject.taken[node]
