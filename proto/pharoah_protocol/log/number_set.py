"""A set of whole numbers that come in runs, such as days: small in memory and in JSON, whatever it holds."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

MAX_RUNS = 1024
"""A log that has a gap every week needs twenty years for as many. A larger set forgets its oldest gap."""


class Run(NamedTuple):
    """All numbers from the first to the last."""

    first: int
    last: int


@dataclass(frozen=True)
class NumberSet:
    """A set that only grows. In order, and no two runs touch each other."""

    runs: tuple[Run, ...] = ()

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        at = bisect_right(self.runs, number, key=lambda run: run.first)
        return at > 0 and number <= self.runs[at - 1].last

    def with_number(self, number: int) -> NumberSet:
        """The set with one number more. With more than MAX_RUNS runs, the oldest gap counts as filled."""
        if number in self:
            return self
        at = bisect_right(self.runs, number, key=lambda run: run.first)
        joins_before = at > 0 and self.runs[at - 1].last + 1 == number
        joins_after = at < len(self.runs) and self.runs[at].first - 1 == number
        first = self.runs[at - 1].first if joins_before else number
        last = self.runs[at].last if joins_after else number
        runs = (*self.runs[: at - joins_before], Run(first=first, last=last), *self.runs[at + joins_after :])
        if len(runs) > MAX_RUNS:
            runs = (Run(first=runs[0].first, last=runs[1].last), *runs[2:])
        return NumberSet(runs)

    def to_json(self) -> list[list[int]]:
        """The runs as pairs of first and last number."""
        return [list(run) for run in self.runs]

    @classmethod
    def from_json(cls, data: object) -> NumberSet:
        """Raises ValueError, TypeError for anything that `to_json` does not give."""
        if not isinstance(data, list):
            raise TypeError("a set of numbers is a list of runs")
        runs = tuple(Run(first=int(first), last=int(last)) for first, last in data)
        ends = [end for run in runs for end in run]
        gaps = [after.first - before.last for before, after in pairwise(runs)]
        if ends != sorted(ends) or any(gap < 2 for gap in gaps) or len(runs) > MAX_RUNS:
            raise ValueError("the runs of a set of numbers are not in order")
        return cls(runs)
