"""What a job's own clock has seen of its steps: the file of durations, and how much longer steps have become."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

USUAL_SECONDS = 50.0
"""Steps of so long before a fault show how long a step usually takes."""


class Step(NamedTuple):
    """One step."""

    ended_at: float
    """Unix seconds."""
    seconds: float


class Span(NamedTuple):
    """A stretch of time, in unix seconds."""

    since: float
    until: float

    def touches(self, since: float, until: float) -> bool:
        """Whether some of this other stretch is in it."""
        return self.since < until and since < self.until


def steps_of(path: Path) -> list[Step]:
    """The steps of a file of durations, in which each line begins with the end and the seconds of a step; none when
    there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Step(*map(float, line.split()[:2])) for line in lines if " " in line]


def slowed(steps: Sequence[Step], began: float, ended: float, ramp: float = 0.0) -> float:
    """The mean step between two unix times over the mean step before; NaN when there is none of one of them.

    `ramp`: so many seconds from the beginning on do not count where steps have ended later.
    """
    before = [step.seconds for step in steps if began - USUAL_SECONDS < step.ended_at < began]
    during = [step for step in steps if began + 1 < step.ended_at < ended]
    complete = [step for step in during if step.ended_at > began + ramp]
    return fmean(step.seconds for step in complete or during) / fmean(before) if before and during else nan


def watched_seconds(steps: Sequence[Step]) -> float:
    """From the beginning of the first step to the end of the last one; 0 without steps."""
    return steps[-1].ended_at - (steps[0].ended_at - steps[0].seconds) if steps else 0.0
