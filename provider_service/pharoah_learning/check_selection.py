"""Which micro-benchmark to run next on which idle node: what most probably finds a fault for each second of it.

A fault of a node in one resource arises at a rate that is learned from earlier checks: that of the node is drawn
towards that of the fleet by as much as little is known of it (Gamma and Poisson distributions, empirical Bayes). A
check that has passed shows that there was no such fault, so the chance of finding one grows with the time since then.
The choice is greedy. Now and then it is random, with a known probability (propensity), so that later estimates can
weigh what was chosen (Horvitz and Thompson, 1952) and every node is looked at.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import expm1
from typing import NamedTuple

from pharoah_protocol.vocabulary import Resource

DAY_SECONDS = 86_400.0
PRIOR_FAULTS = 0.5
"""Faults that stand for what is assumed before anything is known (Jeffreys' prior of a rate)."""
PRIOR_DAYS = 500.0
"""Days of nodes in which they are assumed to have occurred: one fault of a resource in a thousand days of a node."""
NODE_FAULTS = 0.2
"""How many faults of the fleet's rate a node counts for before it has any of its own: a small number lets nodes differ
much, as published fleets show that few nodes have most of the faults. Assumed."""
EXPLORATION = 0.05
"""Share of the choices that are random."""
NEVER_CHECKED_DAYS = 30.0
"""The time since the last check of a benchmark that was never run on a node."""


class PastCheck(NamedTuple):
    """One check of an idle node."""

    node: str
    benchmark: str
    at: float
    """Unix seconds."""
    found: bool
    """Whether it has found something."""


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


class _Subject(NamedTuple):
    """A resource of a node."""

    node: str
    resource: Resource


def choose(
    candidates: Sequence[Candidate],
    past: Iterable[PastCheck],
    resource_of: Mapping[str, Resource],
    now: float,
    chance: random.Random,
    expected: Callable[[str], Mapping[Resource, float]] = lambda _: {},
) -> Choice | None:
    """The next check; None without candidates. `resource_of`: that of each benchmark; `now` in unix seconds.

    `expected(node)`: the faults of each resource that are expected in a day, by what the signals of the node show now.
    Where they are more than earlier checks say, they count.
    """
    if not candidates:
        return None
    checks = [check for check in past if check.benchmark in resource_of]
    rates = _rates(checks, resource_of, now)
    newest: dict[tuple[str, str], float] = {}
    for check in checks:
        key = (check.node, check.benchmark)
        newest[key] = max(newest.get(key, check.at), check.at)

    def catch(one: Candidate) -> float:
        last = newest.get((one.node, one.benchmark))
        days = NEVER_CHECKED_DAYS if last is None else max(0.0, now - last) / DAY_SECONDS
        rate = max(rates.of(_Subject(one.node, one.resource)), expected(one.node).get(one.resource, 0.0))
        return -expm1(-rate * days)

    best = max(candidates, key=lambda one: (catch(one) / one.seconds, one.node, one.benchmark))
    explores = chance.random() < EXPLORATION
    chosen = chance.choice(candidates) if explores else best
    propensity = EXPLORATION / len(candidates) + (1 - EXPLORATION if chosen == best else 0.0)
    return Choice(chosen, propensity, catch(chosen))


class _Rates(NamedTuple):
    """Faults per day."""

    fleet: Mapping[Resource, float]
    faults: Mapping[_Subject, int]
    days: Mapping[_Subject, float]
    """How long a resource of a node was under watch."""

    def of(self, subject: _Subject) -> float:
        """The rate of a resource of a node, drawn towards that of the fleet."""
        fleet = self.fleet.get(subject.resource, PRIOR_FAULTS / PRIOR_DAYS)
        days = NODE_FAULTS / fleet + self.days.get(subject, 0.0)
        return (NODE_FAULTS + self.faults.get(subject, 0)) / days


def _rates(checks: Iterable[PastCheck], resource_of: Mapping[str, Resource], now: float) -> _Rates:
    faults: dict[_Subject, int] = defaultdict(int)
    first: dict[_Subject, float] = {}
    was_found: dict[tuple[str, str], bool] = {}
    for check in sorted(checks, key=lambda check: check.at):
        subject, key = _Subject(check.node, resource_of[check.benchmark]), (check.node, check.benchmark)
        faults[subject] += check.found and not was_found.get(key, False)  # one fault is found as long as it lasts
        was_found[key] = check.found
        first[subject] = min(first.get(subject, check.at), check.at)
    days = {subject: max(0.0, now - at) / DAY_SECONDS for subject, at in first.items()}
    fleet: dict[Resource, float] = {}
    for resource in {subject.resource for subject in days}:
        found = sum(count for subject, count in faults.items() if subject.resource is resource)
        watched = sum(time for subject, time in days.items() if subject.resource is resource)
        fleet[resource] = (PRIOR_FAULTS + found) / (PRIOR_DAYS + watched)
    return _Rates(fleet, faults, days)
