"""Counters of risky seconds: one for each rank of a run, and the rule that leads from the ranks to the job.

A counter fires when `needed` of the newest `needed + 1` seconds of its own rank are risky. From then on its rank is
raised, until CLEAN_SECONDS seconds of this rank in a row are clean.

A job is suspicious as soon as ANY of its ranks is raised. One throttled GPU of eight slows only its own rank wherever
the ranks do not wait for each other: while data is loaded, in pipeline bubbles, between two synchronisations of
asynchronous or local updates. A rule that asked for several ranks would never see it. A job is clean only when NO rank
is raised: the other seven ranks say nothing about the eighth.

The price of "any" is chance. When a share p of the seconds is risky by chance, a counter of "k of k + 1" fires at a
rate of about k p^k per second, and R ranks fire R times as often. `count_needed` therefore asks for more risky seconds
where there are more ranks, so that no job of several ranks is suspected by chance more often than a job of one rank.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

CLEAN_SECONDS = 5
"""Seconds without risk in a row after which a raised rank counts as clean. Detection takes two to four seconds; a node
that is called healthy again must have shown it for longer than that."""
MIN_NEEDED = 2
"""Risky seconds of three that a job of one rank needs: one alone may be a pause for a checkpoint."""
CHANCE_RATIO = 0.02
"""Share of risky seconds of a healthy rank that `count_needed` protects against, when they are independent.
`python -m evaluation odd_rank` prints what it makes of 1, 8 and 64 ranks."""


def count_needed(ranks: int) -> int:
    """How many risky seconds (of one more) a rank needs, so that all ranks together fire by chance no more often than a
    single rank with 2 of 3: 2 for 1 rank, 3 for up to 33, 4 for up to 1250."""
    needed = MIN_NEEDED
    while ranks * _chance_rate(needed) > _chance_rate(MIN_NEEDED):
        needed += 1
    return needed


def _chance_rate(needed: int) -> float:
    """Events per second in which a risky second completes `needed` of `needed + 1`."""
    return float(needed * CHANCE_RATIO**needed)


@dataclass
class RankCounter:
    """The newest seconds of one rank."""

    needed: int
    raised: bool = False
    _recent: deque[bool] = field(init=False)

    def __post_init__(self) -> None:
        self._recent = deque(maxlen=max(self.needed + 1, CLEAN_SECONDS))

    def second(self, risky: bool) -> bool:
        """One more second. Returns whether the counter fires."""
        self._recent.append(risky)
        fires = risky and self._risky_lately() >= self.needed
        if fires:
            self.raised = True
        elif len(self._recent) >= CLEAN_SECONDS and not any(list(self._recent)[-CLEAN_SECONDS:]):
            self.raised = False
        return fires

    @property
    def calm(self) -> bool:
        """Whether the rank is not raised and is not one risky second away from it."""
        return not self.raised and self._risky_lately() < self.needed - 1

    @property
    def risky(self) -> bool:
        """Whether the newest second was risky."""
        return bool(self._recent) and self._recent[-1]

    def _risky_lately(self) -> int:
        return sum(list(self._recent)[-(self.needed + 1) :])


class RunCounters:
    """The counters of all ranks of one run."""

    def __init__(self, ranks: int, *, raised: bool = False) -> None:
        """`raised`: the run had raised an incident before the provider was restarted. Which rank it was is not stored,
        so every rank has to show that it is clean."""
        self._ranks = [RankCounter(count_needed(ranks), raised) for _ in range(ranks)]
        self._raised = ranks if raised else 0
        """How many ranks are raised: this is asked for every row of a report."""

    def second(self, rank: int, risky: bool) -> bool:
        """One more second of a rank. Returns whether its counter fires."""
        counter = self._ranks[rank]
        before = counter.raised
        fires = counter.second(risky)
        self._raised += counter.raised - before
        return fires

    @property
    def raised(self) -> bool:
        """Whether any rank is raised."""
        return self._raised > 0

    @property
    def calm(self) -> bool:
        """Whether every rank is calm."""
        return all(counter.calm for counter in self._ranks)

    @property
    def risky(self) -> bool:
        """Whether the newest second of any raised rank was risky."""
        return any(counter.raised and counter.risky for counter in self._ranks)
