"""Suspects in a campaign: which can be confirmed, with which cells, and what their complete blocks say."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.settings import SettingError, check
from pharoah_learning.confirmations import (
    Confirmation,
    Pair,
    confirmation,
    control_of,
    plan_pairs,
    runs_like_control,
)
from pharoah_learning.context_evidence import in_contexts
from pharoah_learning.context_rule import ALL_FACTS, ContextRule
from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.opinions import MIN_NODES
from pharoah_learning.release import Suspect
from pharoah_learning.usable_trials import usable_trials
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.campaigns.pair_prices import PairPrice
from pharoah_provider.campaigns.schedule import SuspectArms
from pharoah_provider.campaigns.works import SuspectPair, Work, WorkState
from pharoah_provider.domain import Node
from pharoah_provider.storage.base import Storage
from pharoah_serving.errors import Invalid
from pharoah_system.bounded_reading import parse_json


@dataclass
class ChosenSuspects:
    """The suspects that a campaign can confirm or refute."""

    arms: list[SuspectArms] = field(default_factory=list)
    pairs: list[SuspectPair] = field(default_factory=list)
    """In the same order."""
    prices: list[PairPrice] = field(default_factory=list)
    """In the same order."""
    notices: list[str] = field(default_factory=list)
    """Why others cannot be."""
    context_rule: ContextRule = ALL_FACTS
    """What makes the contexts of the suspects."""


class _PlannedCells:
    """The cells that campaigns have had, which are read once for each workload: there are many of them."""

    def __init__(self, store: Storage) -> None:
        self._store = store
        self._cells: dict[str, dict[str, Cell]] = {}
        """Workload to its cells by their content."""
        self._seconds: dict[str, dict[str, float]] = {}
        """Workload to what its cells have taken, by their content."""

    async def cell(self, content: str, cell_id: str) -> Cell:
        """A cell that trains this, with the steps and the time that a campaign has given it before. Raises
        SettingError."""
        workload, settings = json.loads(content)
        check(workload, settings)
        if workload not in self._cells:
            planned = await self._store.campaigns.list_planned_cells(workload)
            self._cells[workload] = await asyncio.to_thread(_newest_by_content, planned)
        return replace(self._cells[workload].get(content) or Cell(cell_id, workload, settings), id=cell_id)

    async def seconds(self, cell: Cell) -> float | None:
        """What such cells have taken in campaigns, else those of its workload; None where none has run."""
        if cell.workload not in self._seconds:
            self._seconds[cell.workload] = await self._store.campaigns.cell_seconds(cell.workload)
        taken = self._seconds[cell.workload]
        return taken.get(cell.content, fmean(taken.values()) if taken else None)


def _newest_by_content(planned: Sequence[Cell]) -> dict[str, Cell]:
    """`planned`: the newest first."""
    return {cell.content: cell for cell in reversed(planned) if cell.degradation is None}


async def suspects_to_confirm(
    store: Storage, suspect_ids: Sequence[str], nodes: Sequence[Node], most_pairs: int = 0
) -> ChosenSuspects:
    """These suspects of the newest release, or all where none is given, as far as these nodes can confirm them.

    `most_pairs`: what the operator allows for each; 0 is as many as are needed. Raises Invalid for an id that is not
    known.
    """
    release = await store.published.newest_release()
    known = {suspect.suspect_id: suspect for suspect in (release.suspects if release else ())}
    if unknown := set(suspect_ids) - known.keys():
        raise Invalid(f"suspects: {min(unknown)!r} is not known (see `pharoah-provider suspects`)")
    rule = release.context_rule if release else ALL_FACTS
    everything = await store.evidence.trials()
    trials = await asyncio.to_thread(lambda: in_contexts(usable_trials(everything, LeftOut()), rule))
    chosen, planned = ChosenSuspects(context_rule=rule), _PlannedCells(store)
    for suspect_id in dict.fromkeys(suspect_ids or known):
        suspect = known[suspect_id]
        if reason := await _add(chosen, suspect, trials, nodes, planned, most_pairs):
            chosen.notices.append(f"suspect {suspect_id} ({suspect.title} on {suspect.node}): {reason}")
    return chosen


async def _add(
    chosen: ChosenSuspects,
    suspect: Suspect,
    trials: Sequence[Trial],
    nodes: Sequence[Node],
    planned: _PlannedCells,
    most_pairs: int,
) -> str:
    """Add a suspect; why it cannot be confirmed where it cannot."""
    there = sum(chosen.context_rule.context_of(node.server_facts) == suspect.context_id for node in nodes)
    if there < MIN_NODES:
        return f"{there} nodes of its context are connected and free, and it takes {MIN_NODES}"
    if suspect.outcome is Outcome.WRONG:
        return "its cells end well and compute other numbers, and pairs of cells compare how they end"
    if not suspect.content:
        return "its release does not name its cell; run `pharoah-provider learn` first"
    control = await asyncio.to_thread(control_of, suspect, trials)
    if not control:
        return "no cell that differs from it in one setting has always worked in its context; run such cells first"
    try:
        suspected_cell = await planned.cell(suspect.content, f"suspect/{suspect.suspect_id}")
        control_cell = await planned.cell(control, f"control/{suspect.suspect_id}")
    except SettingError as error:
        return f"this provider cannot order it any more: {error}"
    needed = await asyncio.to_thread(lambda: plan_pairs(runs_like_control(suspect, trials), there))
    pairs = min(needed, most_pairs or needed)
    taken = [await planned.seconds(cell) for cell in (suspected_cell, control_cell)]
    limits = (suspected_cell.limit_seconds, control_cell.limit_seconds)
    chosen.prices.append(
        PairPrice(
            suspect=f"{suspect.suspect_id} ({suspect.title} on {suspect.node})",
            pairs=pairs,
            needed=needed,
            nodes=there,
            pair_seconds=sum(limit if one is None else one for one, limit in zip(taken, limits, strict=True)),
            measured=None not in taken,
        )
    )
    chosen.arms.append(SuspectArms(suspect.suspect_id, suspect.context_id, suspected_cell, control_cell, pairs))
    chosen.pairs.append(
        SuspectPair(
            suspect_id=suspect.suspect_id,
            node=suspect.node,
            title=suspect.title,
            suspected=suspected_cell.content,
            control=control_cell.content,
            confirmation=Confirmation(most_pairs=pairs),
        )
    )
    return ""


class _Block(NamedTuple):
    """Both works of a pair; None for one that is not there."""

    suspected: Work | None
    control: Work | None

    def are_all(self, *states: WorkState) -> bool:
        """Whether both works are there and in one of these states."""
        return all(work is not None and work.state in states for work in self)

    @property
    def ended(self) -> tuple[float, int]:
        """When the second one ended."""
        return max((work.ended_at, work.number) for work in self if work)

    def pair(self) -> Pair:
        """What they say, when both are done."""
        assert self.suspected and self.control
        return Pair(
            node=self.suspected.node,
            suspected_failed=self.suspected.outcome is not Outcome.OK,
            control_failed=self.control.outcome is not Outcome.OK,
        )


def pairs_of(suspect: SuspectPair, works: Iterable[Work]) -> list[Pair]:
    """The complete blocks of a suspect in the order in which they ended. A block that was moved counts where it was
    completed."""
    return _pairs(_blocks_of(suspect, works))


def with_its_pairs(suspect: SuspectPair, works: Iterable[Work]) -> SuspectPair:
    """The suspect with what its blocks say now. One of which no further block can be completed is given up."""
    blocks = _blocks_of(suspect, works)
    most_pairs = sum(block.are_all(WorkState.WAITING, WorkState.DONE) for block in blocks)
    return replace(suspect, confirmation=confirmation(_pairs(blocks), suspect.node, most_pairs))


def _pairs(blocks: Iterable[_Block]) -> list[Pair]:
    complete = [block for block in blocks if block.are_all(WorkState.DONE)]
    return [block.pair() for block in sorted(complete, key=lambda block: block.ended)]


def _blocks_of(suspect: SuspectPair, works: Iterable[Work]) -> list[_Block]:
    """The blocks of a suspect. What its cells train is compared as it is, because their content takes long to write,
    and a campaign asks after each work."""
    arms = [parse_json(content, "cell") for content in (suspect.suspected, suspect.control)]
    found: dict[int, list[Work | None]] = defaultdict(lambda: [None, None])
    for work in works:
        if work.suspect == suspect.suspect_id and work.cell:
            content = [work.cell.workload, work.cell.settings]
            if content in arms:
                found[work.block][arms.index(content)] = work
    return [_Block(suspected, control) for suspected, control in found.values()]
