"""What is to be done with nodes because of their class, within a breaker."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.node_actions import Breaker, decide, fleet_health_ratio
from pharoah_learning.node_class import NodeClassEstimate
from pharoah_learning.node_classes import ClassedNode
from pharoah_protocol.vocabulary import NodeAction, NodeClass

WORK = '["gpt", {"length": 1024}]'


def classed(node: str, node_class: NodeClass, probability: float = 0.99) -> ClassedNode:
    """A node with a class; the other classes share what is left."""
    rest = (1 - probability) / (len(NodeClass) - 1)
    posterior = {one: probability if one is node_class else rest for one in NodeClass}
    estimate = NodeClassEstimate(node_class, posterior, {WORK: 0.9}, reruns=20, next_workload=None)
    return ClassedNode(node, estimate, failures=9, wrong_for=estimate.wrong_for, context_id="c")


def context_of(nodes: int) -> dict[str, str]:
    return {f"n{number}": "c1" for number in range(nodes)}


@pytest.mark.parametrize(
    ("node_class", "probability", "action"),
    [
        (NodeClass.PERSISTENT, 0.99, NodeAction.DRAIN),
        (NodeClass.PERSISTENT, 0.9, NodeAction.KEEP),  # not certain
        (NodeClass.GRAY, 0.99, NodeAction.AVOID),
        (NodeClass.GRAY, 0.9, NodeAction.KEEP),
        (NodeClass.TRANSIENT, 0.99, NodeAction.KEEP),
        (NodeClass.HEALTHY, 0.99, NodeAction.KEEP),
    ],
)
def test_only_a_certain_class_has_consequences(node_class: NodeClass, probability: float, action: NodeAction) -> None:
    (found,) = decide([classed("n1", node_class, probability)], context_of(30))
    assert found.action is action
    assert not found.held_back


def test_a_drained_node_returns_when_its_class_has_become_less_probable_than_not() -> None:
    (still,) = decide([classed("n1", NodeClass.PERSISTENT, 0.6)], context_of(30), drained={"n1"})
    (over,) = decide([classed("n1", NodeClass.PERSISTENT, 0.4)], context_of(30), drained={"n1"})
    assert (still.action, over.action) == (NodeAction.DRAIN, NodeAction.KEEP)


def test_a_node_that_is_not_known_any_more_is_left_out() -> None:
    assert decide([classed("gone", NodeClass.PERSISTENT)], context_of(30)) == []


def test_nodes_that_are_gone_neither_take_places_nor_make_a_context_larger() -> None:
    sick = [classed(node, NodeClass.PERSISTENT) for node in ("n0", "n1", "n2")]
    decided = {one.node: one for one in decide(sick, context_of(3), drained={"n0"}, gone={"n0"})}
    assert decided["n0"].action is NodeAction.DRAIN, "it stays drained, should it come back"
    assert [decided[node].held_back for node in ("n1", "n2")] == [False, True], (
        "two nodes are left, of which one may go"
    )
    (last,) = decide(sick[1:2], context_of(2), gone={"n0"})
    assert last.held_back, "the last node of a context stays"


def test_a_context_of_one_node_loses_it_never_and_a_small_one_loses_one() -> None:
    (alone,) = decide([classed("n0", NodeClass.PERSISTENT)], context_of(1))
    assert alone.held_back
    both = decide([classed(name, NodeClass.PERSISTENT) for name in ("n0", "n1")], context_of(3))
    assert [one.action for one in both].count(NodeAction.DRAIN) == 1


def test_what_is_drained_keeps_its_place_before_a_node_that_is_sicker() -> None:
    nodes = [classed("n0", NodeClass.PERSISTENT, 0.96), classed("n1", NodeClass.PERSISTENT, 0.999)]
    first, second = decide(nodes, context_of(10), drained={"n0"})
    assert first.action is NodeAction.DRAIN
    assert second.held_back


@given(
    sick=st.sets(st.integers(0, 99)),
    drained=st.sets(st.integers(0, 99)),
    contexts=st.integers(1, 5),
    most_nodes=st.integers(0, 20),
    most_share=st.sampled_from([0.0, 0.1, 0.29, 0.5, 1.0]),
)
def test_the_breaker_holds_whatever_is_sick(
    sick: set[int], drained: set[int], contexts: int, most_nodes: int, most_share: float
) -> None:
    where = {f"n{number}": f"c{number % contexts}" for number in range(100)}
    breaker = Breaker(most_nodes, most_share)
    found = decide(
        [classed(f"n{number}", NodeClass.PERSISTENT) for number in sick], where, {f"n{n}" for n in drained}, breaker
    )
    out = [one.node for one in found if one.action is NodeAction.DRAIN]
    sizes = Counter(where.values())
    assert len(out) <= most_nodes
    assert all(n <= max(1, most_share * sizes[c]) for c, n in Counter(where[node] for node in out).items())
    assert len(found) == len(sick)
    assert all((one.action is NodeAction.DRAIN) != one.held_back for one in found)


@pytest.mark.parametrize("values", [{"most_nodes": -1}, {"most_share": 1.1}, {"most_share": float("nan")}])
def test_a_breaker_that_means_nothing_is_refused_by_name(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        Breaker(**values)  # type: ignore[arg-type]


def test_the_health_of_a_fleet_is_the_expected_share_of_nodes_that_work() -> None:
    found = decide([classed("n0", NodeClass.PERSISTENT, 0.97), classed("n1", NodeClass.GRAY, 0.97)], context_of(10))
    assert fleet_health_ratio(found, 10) == pytest.approx(1 - 2 * 0.98 / 10)
    assert fleet_health_ratio([], 0) == 1.0
