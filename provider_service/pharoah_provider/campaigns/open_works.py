"""The works of a campaign that are still to be done, and which node has taken which block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from pharoah_learning.opinions import LEAST_NODES
from pharoah_provider.campaigns.schedule import begun_again
from pharoah_provider.campaigns.works import Work, WorkKind, WorkState


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
        return sum(work.state in (WorkState.DONE, WorkState.DROPPED) for work in self._works.values())

    def left(self, *kinds: WorkKind) -> list[Work]:
        """What is not done, in the order of the plan: of these kinds, or of all."""
        waiting = (work for work in self._works.values() if work.state is WorkState.WAITING)
        return [work for work in waiting if not kinds or work.kind in kinds]

    def take(self, node: str, context: str, usable: int, measured: bool) -> Work | None:
        """The next work for a node in a context; the block of the work has this node from now on.

        `usable`: how many nodes the context has for this campaign. Two of them run the blocks of each workload, where
        there are two. `measured`: whether baselines may begin, because no cell is left that a node could run.
        """
        free = [work for work in self.left() if work.number not in self._out]
        own = [work for work in free if work.node == node and (work.cell or measured)]
        open_here = [work for work in free if not work.node and work.context_id == context]
        chosen = next(iter(own), None) or next((work for work in open_here if self._may(node, work, usable)), None)
        if chosen is None:
            return None
        for work in self._block(chosen.block):
            self._works[work.number] = replace(work, node=node)
        self._out.add(chosen.number)
        return self._works[chosen.number]

    def put_back(self, work: Work) -> None:
        """It was not done."""
        self._out.discard(work.number)

    def finish(self, work: Work, state: WorkState = WorkState.DONE) -> None:
        """It was done, or will never be."""
        self._out.discard(work.number)
        self._works[work.number] = replace(self._works[work.number], state=state)

    def owners(self) -> set[str]:
        """Nodes that have blocks which are not done."""
        return {work.node for work in self.left() if work.node}

    def release(self, node: str) -> list[Work]:
        """Let other nodes do the open blocks of a node that is gone; the new works, which are to be stored."""
        blocks = sorted({work.block for work in self.left(WorkKind.CELL, WorkKind.DEGRADED) if work.node == node})
        added: list[Work] = []
        for block in blocks:
            old = self._block(block)
            new = begun_again(old, max(self._works) + 1, max(work.block for work in self._works.values()) + 1)
            for work in old:
                if work.state is WorkState.WAITING:
                    self.finish(work, WorkState.MOVED)
            fresh = [replace(work, state=WorkState.WAITING) for work in new]
            self._works |= {work.number: work for work in fresh}
            added += fresh
        return added

    def _block(self, block: int) -> list[Work]:
        return [work for work in self._works.values() if work.block == block]

    def _may(self, node: str, work: Work, usable: int) -> bool:
        """Whether enough blocks of this workload are left for the other nodes that must run one."""
        if work.kind is not WorkKind.CELL:
            return True
        nodes: dict[int, str] = defaultdict(str)
        for other in self._works.values():
            same = other.subject == work.subject and other.context_id == work.context_id
            if same and other.state is not WorkState.MOVED:
                nodes[other.block] = other.node
        others_needed = min(LEAST_NODES, usable) - len({name for name in nodes.values() if name} | {node})
        return sum(not name for name in nodes.values()) > max(0, others_needed)
