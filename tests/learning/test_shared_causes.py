"""What nodes that became slow at once have in common."""

from __future__ import annotations

import random
from math import comb

import pytest

from pharoah_learning.shared_causes import LEVEL, find_shared_causes

SWITCHES = {f"n{number:02}": (f"switch=s{number // 8}", f"rack=r{number // 4}") for number in range(64)}


def behind(switch: int) -> list[str]:
    return [node for node, names in SWITCHES.items() if f"switch=s{switch}" in names]


def test_a_failing_switch_is_one_cause_with_the_probability_of_fishers_exact_test() -> None:
    (found,) = find_shared_causes(behind(3), SWITCHES)
    assert (found.name, found.size, found.nodes) == ("switch=s3", 8, tuple(behind(3)))
    assert found.p_value == pytest.approx(1 / comb(64, 8))


def test_some_nodes_of_a_switch_and_one_elsewhere_are_still_the_switch() -> None:
    (found,) = find_shared_causes([*behind(3)[:6], "n00"], SWITCHES)
    assert (found.name, len(found.nodes)) == ("switch=s3", 6)


def test_a_rack_is_named_where_only_the_rack_is_affected() -> None:
    (found,) = find_shared_causes(["n08", "n09", "n10", "n11"], SWITCHES)
    assert found.name == "rack=r2"


def test_two_causes_are_two() -> None:
    found = find_shared_causes([*behind(1), *behind(6)], SWITCHES)
    assert {one.name for one in found} == {"switch=s1", "switch=s6"}


def test_what_nothing_distinguishes_is_named_together() -> None:
    """A job on exactly the nodes of a switch: either may be the cause."""
    shared = {node: (*names, *(["job=j"] if node in behind(2) else [])) for node, names in SWITCHES.items()}
    (found,) = find_shared_causes(behind(2), shared)
    assert {found.name, *found.equal} == {"switch=s2", "job=j"}


@pytest.mark.parametrize(
    "affected",
    [
        [],
        ["n00"],
        ["n00", "n01"],
        list(SWITCHES),  # all nodes have everything in common
        ["n00", "n09", "n18", "n27", "n36"],  # one behind each of five switches
        ["gone-1", "gone-2", "gone-3"],
    ],
)
def test_what_has_nothing_particular_in_common_has_no_cause(affected: list[str]) -> None:
    assert find_shared_causes(affected, SWITCHES) == []


def test_chance_alone_seldom_looks_like_a_cause() -> None:
    chance, found = random.Random(11), 0
    for _ in range(400):
        found += bool(find_shared_causes(chance.sample(sorted(SWITCHES), chance.randint(3, 20)), SWITCHES))
    assert found / 400 <= LEVEL
