"""The budget of a campaign: how much of it is used, and which block is next when it does not last for all.

All of it follows from the works as they are stored, so that a provider that was restarted goes on in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import inf
from statistics import fmean
from typing import NamedTuple

from pharoah_learning.models.expected_information import CellHistory, Choice, most_informative, prior_rate
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.campaigns.works import Work, WorkState

BASELINE_SECONDS = 60.0
"""What a baseline is expected to take before one has been measured; 45 s on two cores at 2.1 GHz."""


class Interval(NamedTuple):
    """When a work ran."""

    start: float
    end: float
    """Unix seconds."""


class Budget:
    """Decides what is next. Without a limit that is always the first block in the order of the plan."""

    def __init__(self, limit_seconds: float, works: Iterable[Work]) -> None:
        """`limit_seconds`: how long works may run, 0 for as long as they take. `works`: all of the campaign."""
        self._limit = limit_seconds or inf
        self._works = {work.number: work for work in works}
        self._running: dict[int, tuple[Work, float]] = {}
        """Number of a work that runs to the work, and to when it began, unix seconds."""

    def begin(self, work: Work, now: float) -> None:
        """A work begins, at a unix time."""
        self._running[work.number] = work, now

    def end(self, work: Work) -> None:
        """A work has ended: it is done, with its times and its outcome, or it begins again later."""
        self._running.pop(work.number, None)
        self._works[work.number] = work

    def left_seconds(self, now: float) -> float:
        """What is left of it at a unix time. Time in which no work runs is not used."""
        done = [Interval(work.began_at, work.ended_at) for work in self._works.values() if work.state is WorkState.DONE]
        return self._limit - covered_seconds([*done, *(Interval(began, now) for _, began in self._running.values())])

    def choose(self, blocks: Iterable[list[Work]], nodes: int, now: float) -> list[Work] | None:
        """The next block; None when none can end in the time that is left.

        `blocks`: those that could be next, in the order of the plan. `nodes`: how many work side by side. The order of
        the plan holds while the time lasts for all of them. When it does not, the block is next that is expected to
        say most per second.
        """
        if self._limit == inf:
            return next(iter(blocks), None)
        found, left, seconds = list(blocks), self.left_seconds(now), self.expected_seconds()
        if found and left > 0 and not seconds:
            return found[0]  # how long anything takes is not known before something has ended
        needed = [sum(seconds[work.number] for work in block) for block in found]
        if found and sum(needed) <= left * nodes and needed[0] <= left:
            return found[0]
        histories = self._histories()
        choices = [
            Choice(tuple(histories[_cell_of(work)] for work in block if work.cell), need)
            for block, need in zip(found, needed, strict=True)
        ]
        place = most_informative(choices, prior_rate(histories.values()), left)
        return None if place is None else found[place]

    def _histories(self) -> Mapping[tuple[str, str], CellHistory]:
        """What the blocks of each cell have shown, by context and content."""
        found: dict[tuple[str, str], CellHistory] = defaultdict(lambda: CellHistory(0, 0))
        for work in self._works.values():
            if work.cell and work.state is WorkState.DONE:
                blocks, failures, pending = found[_cell_of(work)]
                found[_cell_of(work)] = CellHistory(blocks + 1, failures + (work.outcome is not Outcome.OK), pending)
        begun = {(work.block, work.node) for work, _ in self._running.values()}
        for work in self._works.values():
            if work.cell and work.state is WorkState.WAITING and any(work.block == block for block, _ in begun):
                blocks, failures, pending = found[_cell_of(work)]
                found[_cell_of(work)] = CellHistory(blocks, failures, pending + 1)
        return found

    def expected_seconds(self) -> dict[int, float]:
        """Number of each work to what it is expected to take: as long as its cell took in other blocks, else as the
        cells of its workload, else as all. Empty before the first has ended."""
        taken: dict[str, list[float]] = defaultdict(list)
        for work in self._works.values():
            if work.state is WorkState.DONE:
                for name in _names(work):
                    taken[name].append(work.ended_at - work.began_at)
        if not taken:
            return {}
        means = {name: fmean(seconds) for name, seconds in taken.items()}
        return {
            number: next((means[name] for name in _names(work) if name in means), BASELINE_SECONDS)
            for number, work in self._works.items()
        }


def covered_seconds(intervals: Iterable[Interval]) -> float:
    """How long at least one of these intervals lasted."""
    total, reached = 0.0, -inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _cell_of(work: Work) -> tuple[str, str]:
    return work.context_id, work.cell.content if work.cell else ""


def _names(work: Work) -> tuple[str, ...]:
    """Under what the time of a work counts, the most specific first."""
    if work.cell is None:
        return ("baseline",)
    return work.cell.content, f"workload {work.cell.workload}", "all cells"
