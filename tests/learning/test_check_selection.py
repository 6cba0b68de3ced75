"""Which micro-benchmark runs next on which idle node."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.check_history import CheckHistory
from pharoah_learning.check_selection import EXPLORATION, Candidate, choose
from pharoah_protocol.vocabulary import Resource

DAY = 86_400.0
NOW = 1_700_000_000.0
RESOURCES = {"gemm": Resource.COMPUTE, "memory": Resource.MEMORY_BANDWIDTH, "disk_write": Resource.STORAGE}


def candidates(*nodes: str, seconds: float = 4.0) -> list[Candidate]:
    return [Candidate(node, name, resource, seconds) for node in nodes for name, resource in RESOURCES.items()]


class Check(NamedTuple):
    """One check of the past."""

    node: str
    benchmark: str
    days_ago: float
    found: bool


def passed(node: str, benchmark: str, days_ago: float, found: bool = False) -> Check:
    return Check(node, benchmark, days_ago, found)


def history(past: list[Check]) -> CheckHistory:
    known = CheckHistory(RESOURCES)
    for check in sorted(past, key=lambda check: -check.days_ago):
        known.add(check.node, check.benchmark, NOW - check.days_ago * DAY, check.found)
    return known


def best(given_candidates: list[Candidate], past: list[Check]) -> Candidate:
    """The choice that is not random."""
    known = history(past)
    chosen = Counter(
        choice.candidate
        for seed in range(60)
        if (choice := choose(given_candidates, known, NOW, random.Random(seed))) is not None
    )
    return chosen.most_common(1)[0][0]


def test_without_candidates_nothing_is_chosen() -> None:
    assert choose([], history([]), NOW, random.Random(0)) is None


def test_what_was_checked_longest_ago_comes_first() -> None:
    past = [passed("n1", "gemm", 1), passed("n1", "memory", 9), passed("n1", "disk_write", 3)]
    assert best(candidates("n1"), past).benchmark == "memory"


def test_what_was_never_checked_comes_before_what_was() -> None:
    past = [passed("n1", "gemm", 1), passed("n1", "memory", 2)]
    assert best(candidates("n1"), past).benchmark == "disk_write"


def test_a_node_with_earlier_faults_comes_before_one_without() -> None:
    past = [passed(node, name, 2) for node in ("n1", "n2") for name in RESOURCES]
    past += [passed(node, "gemm", 60) for node in ("n1", "n2")] + [passed("n2", "memory", 30, found=True)]
    chosen = best(candidates("n1", "n2"), past)
    assert (chosen.node, chosen.benchmark) == ("n2", "memory")


def test_a_fault_that_lasted_for_a_week_is_one_fault() -> None:
    """It was measured each hour. Another node had two faults in the same time."""
    past = [passed(node, name, days) for node in ("n1", "n2") for name in RESOURCES for days in (60, 2)]
    past += [passed("n1", "gemm", 20 + hour / 24, found=True) for hour in range(168)]
    past += [passed("n2", "gemm", days, found=True) for days in (10, 30)] + [passed("n2", "gemm", 20)]
    chosen = best(candidates("n1", "n2"), past)
    assert (chosen.node, chosen.benchmark) == ("n2", "gemm")


def test_of_what_finds_as_much_the_shorter_one_is_chosen() -> None:
    long, short = candidates("n1", seconds=40.0)[0], candidates("n2", seconds=4.0)[0]
    assert best([long, short], []) == short


@given(count=st.integers(1, 6), seed=st.integers(0, 1000))
def test_the_propensity_of_every_choice_is_a_probability(count: int, seed: int) -> None:
    choice = choose(candidates(*(f"n{n}" for n in range(count))), history([]), NOW, random.Random(seed))
    assert choice is not None
    assert EXPLORATION / (3 * count) <= choice.propensity <= 1.0 + 1e-12
    assert 0 < choice.catch_probability < 1


def test_the_stated_propensity_is_how_often_something_is_chosen() -> None:
    """Every candidate is chosen as often as its propensity says: five standard errors of 40,000 draws."""
    past, chance = history([passed("n1", "gemm", 1), passed("n1", "memory", 9)]), random.Random(7)
    counts, stated = Counter[Candidate](), dict[Candidate, float]()
    draws = 40_000
    for _ in range(draws):
        choice = choose(candidates("n1", "n2"), past, NOW, chance)
        assert choice is not None
        counts[choice.candidate] += 1
        stated[choice.candidate] = choice.propensity
    assert len(counts) == 6
    assert sum(stated.values()) == pytest.approx(1.0)
    for candidate, propensity in stated.items():
        error = (propensity * (1 - propensity) / draws) ** 0.5
        assert counts[candidate] / draws == pytest.approx(propensity, abs=5 * error)


def test_a_node_whose_signals_show_a_failure_to_come_is_checked_first() -> None:
    past = history([passed(node, name, 1.0) for node in ("n1", "n2") for name in RESOURCES])
    expected = {"n1": {Resource.STORAGE: 0.2}, "n2": {Resource.STORAGE: 0.0}}
    chosen = Counter(
        choice.candidate
        for seed in range(60)
        if (choice := choose(candidates("n1", "n2"), past, NOW, random.Random(seed), expected.__getitem__))
    )
    assert chosen.most_common(1)[0][0][:2] == ("n1", "disk_write")
