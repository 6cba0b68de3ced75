"""The cells of a campaign that are still to be run in one context, spread over its nodes.

One node proves nothing (ADR 21): a row needs two nodes. So the repeats of a cell are shared out such that two nodes of
the context run it, where it has two, and otherwise whichever node is free takes the next one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_learning.opinions import LEAST_NODES


class CellQueue:
    """Cells of one context, in the order of the campaign file."""

    def __init__(self, cells: Sequence[Cell], nodes: Iterable[str]) -> None:
        """A cell that the file asks for once runs on two nodes, where there are two."""
        self._nodes = set(nodes)
        self._waiting = list(cells)
        self._waiting += _once_more(cells) if self._needed > 1 else []
        self._ran_on: dict[str, set[str]] = defaultdict(set)

    @property
    def _needed(self) -> int:
        return min(LEAST_NODES, len(self._nodes))

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, node: str) -> Cell | None:
        """The next cell for a node. None when there is none, or when other nodes must run what is left."""
        for at, cell in enumerate(self._waiting):
            others_needed = max(0, self._needed - len(self._ran_on[_content(cell)] | {node}))
            if self._left(cell) > others_needed:
                self._ran_on[_content(cell)].add(node)
                return self._waiting.pop(at)
        return None

    def give_up(self, node: str, cell: Cell) -> None:
        """A node has gone, and did not run the cell that it took: the others run all that is left."""
        self._nodes.discard(node)
        if self._nodes:
            self._waiting.insert(0, cell)

    def _left(self, cell: Cell) -> int:
        return sum(_content(other) == _content(cell) for other in self._waiting)


def _once_more(cells: Sequence[Cell]) -> list[Cell]:
    """A second repeat of each cell that has one."""
    repeats: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        repeats[_content(cell)].append(cell)
    return [
        replace(same[0], id=f"{same[0].id}+", repeat=same[0].repeat + 1) for same in repeats.values() if len(same) == 1
    ]


def _content(cell: Cell) -> str:
    return json.dumps([cell.workload, cell.settings], sort_keys=True)
