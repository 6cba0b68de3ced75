"""How well the kind of a job is guessed from the times of its messages: when they come, and which times they state."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pstdev
from typing import NamedTuple

import numpy as np

from evaluation.privacy.guessing import Advantage, advantage

WINDOWS, WINDOW_SECONDS = 4, 8.0
"""How often an attacker sees messages of one job, and for how long."""
SHUFFLES = 100


class Sent(NamedTuple):
    """One message with telemetry, or one report."""

    came: float
    """Monotonic seconds, by the provider's clock."""
    stated: float
    """Unix seconds of the sample or of the reported second, as the message states them."""
    raised: frozenset[str] = frozenset()
    """Trouble bits of a message with telemetry."""


Rounds = Sequence[Sequence[Sequence[Sent]]]
"""The messages of jobs. In each round there is one job of each kind, in the same order."""


def times_advantage(rounds: Rounds, period_seconds: float) -> Advantage:
    """Attackers are trained on four of five parts, and tested on the other one. `advantage` takes every fifth row for a
    part, so the rows of one round are in one part. `period_seconds`: from one message to the next."""
    rows, kinds, jobs = [], [], []
    size, of_kinds = round(WINDOW_SECONDS / period_seconds), len(rounds[0])
    for kind in range(of_kinds):
        for number in range(WINDOWS):
            for at, one in enumerate(rounds):
                rows.append(_numbers(one[kind][number * size : (number + 1) * size], period_seconds))
                kinds.append(kind)
                jobs.append(at * of_kinds + kind)
    return advantage(np.array(rows), np.array(kinds, dtype=np.int64), of_kinds, np.array(jobs, dtype=np.int64))


def shuffled_ratio(rounds: Rounds, period_seconds: float, value: float, chance: random.Random) -> float:
    """How often the advantage is at least `value` when the kinds of the jobs of each round are shuffled: what attackers
    gain by chance. A permutation test (Fisher 1935): where times show nothing, a share below 0.05 is rare."""
    shuffled = ([chance.sample(one, len(one)) for one in rounds] for _ in range(SHUFFLES))
    return fmean(times_advantage(one, period_seconds).value >= value for one in shuffled)


def spread(times: Sequence[float]) -> float:
    """The deviation of the times from one message to the next, seconds."""
    gaps = [after - before for before, after in pairwise(times)]
    return pstdev(gaps) if gaps else 0.0


def _numbers(window: Sequence[Sent], period_seconds: float) -> list[float]:
    """How the times between messages, and between the stated times, differ from the period."""
    found = []
    for times in ([one.came for one in window], [one.stated for one in window]):
        gaps = [after - before - period_seconds for before, after in pairwise(times)] or [0.0]
        found += [fmean(gaps), pstdev(gaps), max(gaps), min(gaps)]
    delays = [one.came - one.stated for one in window] or [0.0]
    return [*found, pstdev(delays), max(delays) - min(delays)]
