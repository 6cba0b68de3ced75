"""Which micro-benchmark to run next on which idle node: what most probably finds a fault for each second of it.

A fault of a node in one resource arises at a rate that is learned from earlier checks (`check_history`). A check that
has passed shows that there was no such fault, so the chance of finding one grows with the time since then. The choice
is greedy. Now and then it is random, with a known probability (propensity), so that later estimates can weigh what was
chosen (Horvitz and Thompson, 1952) and every node is looked at.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import expm1
from typing import NamedTuple

from pharoah_learning.check_history import DAY_SECONDS, CheckHistory
from pharoah_protocol.vocabulary import Resource

EXPLORATION = 0.05
"""Share of the choices that are random."""
NEVER_CHECKED_DAYS = 30.0
"""The time since the last check of a benchmark that was never run on a node."""


class Candidate(NamedTuple):
    """What could be run."""

    node: str
    benchmark: str
    resource: Resource
    seconds: float
    """How long it takes at most."""


class Choice(NamedTuple):
    """What is to be run."""

    candidate: Candidate
    propensity: float
    """The probability with which it was chosen."""
    catch_probability: float
    """How probable it is that the node has a fault that it finds, which arose since the last check."""


def choose(
    candidates: Sequence[Candidate],
    past: CheckHistory,
    now: float,
    chance: random.Random,
    expected: Callable[[str], Mapping[Resource, float]] = lambda _: {},
) -> Choice | None:
    """The next check; None without candidates. `now` in unix seconds.

    `expected(node)`: the faults of each resource that are expected in a day, by what the signals of the node show now.
    Where they are more than earlier checks say, they count.
    """
    if not candidates:
        return None

    def catch(one: Candidate) -> float:
        last = past.newest_at(one.node, one.benchmark)
        days = NEVER_CHECKED_DAYS if last is None else max(0.0, now - last) / DAY_SECONDS
        rate = max(past.rate(one.node, one.resource), expected(one.node).get(one.resource, 0.0))
        return -expm1(-rate * days)

    best = max(candidates, key=lambda one: (catch(one) / one.seconds, one.node, one.benchmark))
    explores = chance.random() < EXPLORATION
    chosen = chance.choice(candidates) if explores else best
    propensity = EXPLORATION / len(candidates) + (1 - EXPLORATION if chosen == best else 0.0)
    return Choice(chosen, propensity, catch(chosen))
