"""The budget of a campaign: how much of it is used, and which block is next when it does not last for all.

All of it follows from the works as they are stored, so that a provider that was restarted goes on in the same way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
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


class _Key(NamedTuple):
    """Which cell a work is."""

    context_id: str
    content: str
    """Empty for a baseline."""
    workload: str

    @property
    def names(self) -> tuple[str, ...]:
        """Under what its time counts, the most specific first."""
        return (self.content, f"workload {self.workload}", "all cells") if self.content else ("baseline",)


class Budget:
    """Decides what is next. Without a limit that is always the first block in the order of the plan."""

    def __init__(self, limit_seconds: float, works: Iterable[Work]) -> None:
        """`limit_seconds`: how long works may run, 0 for as long as they take. `works`: all of the campaign."""
        self._limit = limit_seconds or inf
        self._keys: dict[int, _Key] = {}
        """Number of a work to its cell: the text of its content is made once."""
        self._running: dict[int, float] = {}
        """Number of a work that runs to when it began, unix seconds."""
        self._pending: dict[int, dict[int, _Key]] = {}
        """Begun block to its cells that have not ended, by the number of their work."""
        self._ended: list[Interval] = []
        self._seconds: dict[str, list[float]] = defaultdict(list)
        """What works have taken, by each of their names."""
        self._histories: dict[_Key, CellHistory] = defaultdict(lambda: CellHistory(0, 0))
        for work in works:
            if work.state is WorkState.DONE:
                self._count(work)

    def begin(self, work: Work, block: Iterable[Work], now: float) -> None:
        """A work of a block begins, at a unix time."""
        self._running[work.number] = now
        self._pending[work.block] = {
            one.number: self._key(one) for one in block if one.cell and one.state is WorkState.WAITING
        }

    def end(self, work: Work, now: float) -> None:
        """A work has ended, at a unix time: it is done, with its times and its outcome, or it begins again later. Then
        the time of the attempt is used up as well, until the provider is restarted."""
        began = self._running.pop(work.number)
        if work.state is not WorkState.DONE:
            self._ended.append(Interval(began, now))
        else:
            self._pending.get(work.block, {}).pop(work.number, None)  # its block may have been moved meanwhile
            self._count(work)

    def move(self, blocks: Iterable[int]) -> None:
        """Blocks that were begun are begun again as others."""
        for block in blocks:
            self._pending.pop(block, None)

    def compute_remaining_seconds(self, now: float) -> float:
        """What is left of it at a unix time. Time in which no work runs is not used."""
        return self._limit - measure_covered_seconds(
            [*self._ended, *(Interval(began, now) for began in self._running.values())]
        )

    def choose(self, blocks: Iterable[list[Work]], nodes: int, now: float) -> list[Work] | None:
        """The next block; None when none can end in the time that is left.

        `blocks`: those that could be next, in the order of the plan. `nodes`: how many work side by side. The order of
        the plan holds while the time lasts for all of them. When it does not, the block is next that is expected to
        say most per second.
        """
        if self._limit == inf:
            return next(iter(blocks), None)
        found, left = list(blocks), self.compute_remaining_seconds(now)
        if found and left > 0 and not self._seconds:
            return found[0]  # how long anything takes is not known before something has ended
        means = {name: fmean(seconds) for name, seconds in self._seconds.items()}
        needed = [sum(_compute_expected(self._key(work), means) for work in block) for block in found]
        if found and sum(needed) <= left * nodes and needed[0] <= left:
            return found[0]
        pending = Counter(key for block in self._pending.values() for key in block.values())
        choices = [
            Choice(tuple(self._history(self._key(work), pending) for work in block if work.cell), need)
            for block, need in zip(found, needed, strict=True)
        ]
        place = most_informative(choices, prior_rate(self._histories.values()), left)
        return None if place is None else found[place]

    def _history(self, key: _Key, pending: Counter[_Key]) -> CellHistory:
        return self._histories.get(key, CellHistory(0, 0))._replace(pending=pending[key])

    def _count(self, work: Work) -> None:
        """Count a work that is done."""
        key = self._key(work)
        self._ended.append(Interval(work.began_at, work.ended_at))
        for name in key.names:
            self._seconds[name].append(work.ended_at - work.began_at)
        if work.cell:
            blocks, failures, _ = self._histories[key]
            self._histories[key] = CellHistory(blocks + 1, failures + (work.outcome is not Outcome.OK))

    def _key(self, work: Work) -> _Key:
        if work.number not in self._keys:
            content, workload = (work.cell.content, work.cell.workload) if work.cell else ("", "")
            self._keys[work.number] = _Key(work.context_id, content, workload)
        return self._keys[work.number]


def _compute_expected(key: _Key, means: Mapping[str, float]) -> float:
    """What a work is expected to take: as long as its cell took in other blocks, else as the cells of its workload,
    else as all."""
    return next((means[name] for name in key.names if name in means), BASELINE_SECONDS)


def measure_covered_seconds(intervals: Iterable[Interval]) -> float:
    """How long at least one of these intervals lasted."""
    total, reached = 0.0, -inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
