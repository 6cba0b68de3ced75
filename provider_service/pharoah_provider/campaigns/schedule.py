"""The works of a campaign in randomised complete blocks.

A block holds every cell of one workload once. Its cells run on one node, one after another, in an order that the seed
draws. So two settings are compared on the same node within minutes, and a bad minute or a bad node harms both (Fisher,
The Design of Experiments, 1935). Repeats of a block come later, and run on other nodes where the context has some.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.campaign.plan import CampaignPlan, PlanError
from pharoah_learning.context_rule import ALL_FACTS, ContextRule
from pharoah_learning.opinions import MIN_NODES
from pharoah_provider.campaigns.works import Work, WorkKind
from pharoah_provider.domain import Node

MAX_WORKS = 200_000
"""Works of one campaign: ten contexts with all the cells that a campaign file may have. The provider keeps them all in
memory while the campaign runs: 180,000 take 240 MB."""


class SuspectArms(NamedTuple):
    """The two cells of a suspect, which are to run in one context."""

    suspect_id: str
    context_id: str
    suspected: Cell
    control: Cell
    pairs: int
    """How many pairs of them are planned."""


def schedule_without_context(plan: CampaignPlan, seed: int) -> list[Work]:
    """All works for an executor without contexts: the cells once. Equal arguments give equal works."""
    blocks = enumerate(_blocks_of(plan.cells, random.Random(f"{seed}/")))
    found = [_work(WorkKind.CELL, "", block, cell) for block, arms in blocks for cell in arms]
    return [replace(work, number=number) for number, work in enumerate(found)]


def schedule_pairs(arms: Sequence[SuspectArms], seed: int) -> list[Work]:
    """All works that suspects may need: a pair of cells for each suspect, then the next pair for each, and so on. The
    order of suspects, and of the two cells within each pair, is drawn. Raises PlanError for more than `MAX_WORKS`."""
    if (works := 2 * sum(one.pairs for one in arms)) > MAX_WORKS:
        raise PlanError(
            f"suspects: their pairs are {works:,} works, and a campaign has at most {MAX_WORKS:,}; confirm some of "
            "them at a time (--suspect), or plan fewer pairs for each (--most-pairs)"
        )
    rng = random.Random(f"{seed}/suspects")
    found: list[Work] = []
    block = 0
    for repeat in range(max((one.pairs for one in arms), default=0)):
        waiting = [one for one in arms if repeat < one.pairs]
        for one in rng.sample(waiting, len(waiting)):
            for cell in rng.sample((one.suspected, one.control), 2):
                again = replace(cell, id=f"{cell.id}#{repeat}", repeat=repeat)
                found.append(replace(_work(WorkKind.CELL, one.context_id, block, again), suspect=one.suspect_id))
            block += 1
    return [replace(work, number=number) for number, work in enumerate(found)]


def schedule_works(plan: CampaignPlan, nodes: Sequence[Node], seed: int, rule: ContextRule = ALL_FACTS) -> list[Work]:
    """All works for these nodes: the cells for each of their contexts, the degraded cells for the context that most of
    them share, and a baseline for each node. Equal arguments give equal works. `rule`: what makes contexts; without one
    every set of facts does. Raises PlanError, before they are made, for more than `MAX_WORKS`."""
    context_of = {node.node: rule.context_of(node.server_facts) for node in nodes}
    contexts: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        contexts[context_of[node.node]].append(node.node)
    cells_of = {
        context: [*plan.cells, *(_once_more(plan.cells) if len(names) >= MIN_NODES else ())]
        for context, names in sorted(contexts.items())
    }
    _check_number(sum(map(len, cells_of.values())) + len(plan.degraded) + len(nodes), len(contexts))
    found: list[Work] = []
    blocks = 0
    for context, cells in cells_of.items():
        for arms in _blocks_of(cells, random.Random(f"{seed}/{context}")):
            found += (_work(WorkKind.CELL, context, blocks, cell) for cell in arms)
            blocks += 1
    plainest = max(sorted(contexts), key=lambda context: len(contexts[context]))
    for cell in plan.degraded:
        found.append(_work(WorkKind.DEGRADED, plainest, blocks, cell))
        blocks += 1
    for node in sorted(nodes, key=lambda node: node.node):
        found.append(replace(_work(WorkKind.BASELINE, context_of[node.node], blocks, None), node=node.node))
        blocks += 1
    return [replace(work, number=number) for number, work in enumerate(found)]


def _check_number(works: int, contexts: int) -> None:
    if works > MAX_WORKS:
        raise PlanError(
            f"workload: the cells are {works:,} works in the {contexts} contexts of the nodes that are connected; a "
            f"campaign has at most {MAX_WORKS:,}"
        )


def begin_again(works: Iterable[Work], number: int, block: int) -> list[Work]:
    """The same block for another node: all its cells, those that are done as well, so that it is complete again.

    `number`, `block`: the first ones that are free."""
    return [
        replace(work, number=number + at, block=block, node="", outcome=None, began_at=0.0, ended_at=0.0)
        for at, work in enumerate(works)
    ]


def _work(kind: WorkKind, context: str, block: int, cell: Cell | None) -> Work:
    return Work(number=0, kind=kind, context_id=context, block=block, cell=cell)


def _blocks_of(cells: Iterable[Cell], rng: random.Random) -> Iterator[list[Cell]]:
    """Blocks in a drawn order, each with its cells in a drawn order: all first repeats before the second ones."""
    repeats: dict[int, dict[str, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        repeats[cell.repeat][cell.workload].append(cell)
    for _, workloads in sorted(repeats.items()):
        blocks = [arms for _, arms in sorted(workloads.items())]
        rng.shuffle(blocks)
        for arms in blocks:
            rng.shuffle(arms)
            yield arms


def _once_more(cells: Sequence[Cell]) -> list[Cell]:
    """A second repeat of each cell that has one: one node proves nothing (ADR 21)."""
    repeats: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        repeats[cell.content].append(cell)
    return [
        replace(same[0], id=f"{same[0].id}+", repeat=same[0].repeat + 1) for same in repeats.values() if len(same) == 1
    ]
