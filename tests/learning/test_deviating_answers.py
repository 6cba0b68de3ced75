"""Nodes that compute other numbers than their class."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.deviating_answers import Deviation, NodeDigest, deviations
from pharoah_protocol.answer_digests import DIGEST, answer_digest, software_of

GOOD, BAD = (answer_digest("torch 1", numbers) for numbers in (b"good", b"bad"))


def digests(*values: str, context: str = "c") -> list[NodeDigest]:
    return [NodeDigest(f"n{number}", context, "reproducibility", value) for number, value in enumerate(values)]


def test_one_of_three_nodes_deviates_and_one_of_two_is_not_named() -> None:
    assert deviations(digests(GOOD, BAD, GOOD)) == [Deviation("n1", "reproducibility", BAD, GOOD, 2, 3)]
    assert deviations(digests(GOOD, BAD)) == []
    assert deviations(digests(GOOD, BAD, BAD, GOOD)) == [], "there is no majority"


def test_the_newest_digest_of_a_node_counts() -> None:
    repaired = NodeDigest("n1", "c", "reproducibility", GOOD)
    assert deviations([*digests(GOOD, BAD, GOOD), repaired]) == []


def test_another_class_and_another_version_are_not_compared() -> None:
    renewed = answer_digest("torch 2", b"good")
    assert renewed != GOOD and software_of(renewed) != software_of(GOOD)
    assert DIGEST.fullmatch(renewed)
    assert deviations(digests(GOOD, renewed, GOOD)) == []
    other = [one._replace(node="other") for one in digests(BAD, context="d")]
    assert deviations([*digests(GOOD, GOOD, GOOD), *other]) == []


@given(st.lists(st.sampled_from([answer_digest("torch", bytes([number])) for number in range(3)]), max_size=9))
def test_most_nodes_never_deviate(values: list[str]) -> None:
    found = deviations(digests(*values))
    assert 2 * len(found) < len(values) or not found
    counts = Counter(values)
    assert all(counts[one.digest] < counts[one.expected] == one.agreeing for one in found)
