"""The class of a node from the cells of campaigns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pharoah_learning.evidence import Trial
from pharoah_learning.node_classes import classify_nodes
from pharoah_protocol.vocabulary import NodeClass, Outcome

WORKLOADS = ("gpt", "convnet", "mlp", "lstm")


def _trials(node: str, failing: dict[str, int], runs: int = 8, context: str = "c1") -> list[Trial]:
    """Cells of every workload on a node, of which the first so many fail."""
    return [
        Trial(
            workload=workload,
            settings={"batch": 8},
            context_id=context,
            device_id="d1",
            outcome=Outcome.ERROR if number < failing.get(workload, 0) else Outcome.OK,
            step_seconds=(),
            fingerprint="",
            node=node,
            ran_at=float(number),
        )
        for workload in WORKLOADS
        for number in range(runs)
    ]


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        (dict.fromkeys(WORKLOADS, 8), NodeClass.PERSISTENT),
        ({"gpt": 8}, NodeClass.GRAY),
        (dict.fromkeys(WORKLOADS, 2), NodeClass.TRANSIENT),
    ],
)
def test_what_fails_on_one_node_alone_gives_it_a_class(failing: dict[str, int], expected: NodeClass) -> None:
    trials = _trials("n1", failing) + _trials("n2", {}) + _trials("n3", {})
    (found,) = classify_nodes(trials)
    assert (found.node, found.estimate.node_class) == ("n1", expected)
    assert bool(found.wrong_for) == (expected is NodeClass.GRAY)


def test_a_workload_that_fails_everywhere_speaks_against_no_node() -> None:
    everywhere = {"gpt": 8}
    trials = [trial for node in ("n1", "n2", "n3") for trial in _trials(node, everywhere)]
    assert classify_nodes(trials) == []


def test_what_no_other_node_of_the_context_has_run_says_nothing() -> None:
    assert classify_nodes(_trials("n1", {"gpt": 8}) + _trials("n2", {}, context="c2")) == []


def test_a_node_is_judged_by_what_it_does_in_its_newest_context() -> None:
    """It failed before and after an update: one class. It failed before an update and not after it: none."""
    before = _trials("n1", dict.fromkeys(WORKLOADS, 8)) + _trials("n2", {}) + _trials("n3", {})

    def updated(failing: dict[str, int]) -> list[Trial]:
        trials = _trials("n1", failing, context="c2") + _trials("n2", {}, context="c2")
        return [replace(trial, ran_at=trial.ran_at + 100) for trial in trials]

    (found,) = classify_nodes(before + updated(dict.fromkeys(WORKLOADS, 8)))
    assert found.node == "n1"
    assert classify_nodes(before + updated({})) == []


def test_what_a_node_runs_now_counts_although_it_has_run_much_else_as_often() -> None:
    """It has run twenty kinds of work that all went well, and fails in all that it has run since."""
    trials = [
        replace(trial, settings={"batch": size}, ran_at=trial.ran_at + 100 * size, outcome=outcome)
        for node in ("n1", "n2", "n3")
        for size in range(10)
        for trial in _trials(node, {}, runs=3)
        for outcome in [Outcome.ERROR if node == "n1" and size >= 5 else Outcome.OK]
    ]
    (found,) = classify_nodes(trials)
    assert found.node == "n1" and found.failures == 60
    assert found.estimate.node_class is NodeClass.GRAY and len(found.wrong_for) == 20


def test_a_node_without_a_failure_is_not_listed() -> None:
    assert classify_nodes(_trials("n1", {}) + _trials("n2", {})) == []
