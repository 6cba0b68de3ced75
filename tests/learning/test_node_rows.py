"""Rows about gray nodes: which jobs on which node they are about, and what they rest on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pharoah_archetypes import Fingerprint, rung_tokens
from pharoah_learning.evidence import Trial
from pharoah_learning.node_rows import learn_node_rows, trials_of_node_row
from pharoah_learning.row_evidence import evidence_of
from pharoah_protocol.tables.query import node_tokens
from pharoah_protocol.vocabulary import Outcome, RowKind, Rung, Severity

WORKLOADS = ("convnet", "gpt", "lstm", "mlp")


def fingerprint(workload: str) -> Fingerprint:
    name = workload.encode().hex().ljust(32, "0")
    return Fingerprint(
        name, name, "fwd: gemm", {"dtype": "float32"}, {"parameters": 9, "activations": 9}, {"torch": "2.13.0"}
    )


def trials(node: str, failing: dict[str, int], runs: int = 10, ran_at: float = 0.0) -> list[Trial]:
    """Cells of every workload on a node, of which the first so many fail."""
    return [
        Trial(
            workload=workload,
            settings={"batch": 8},
            context_id="c1",
            device_id="d1",
            outcome=Outcome.NAN if number < failing.get(workload, 0) else Outcome.OK,
            step_seconds=(),
            fingerprint=fingerprint(workload).to_json(),
            node=node,
            ran_at=ran_at + number,
            trial_id=f"{node}{workload}{number}{ran_at}",
        )
        for workload in WORKLOADS
        for number in range(runs)
    ]


HEALTHY = trials("n2", {}) + trials("n3", {})


def test_a_job_for_which_a_node_is_wrong_has_a_row_and_the_others_have_none() -> None:
    rows = learn_node_rows(trials("n1", {"gpt": 10}) + HEALTHY, {})
    assert [(row.rung, row.severity) for row in rows] == [(Rung.EXACT, Severity.BLOCK), (Rung.MINOR, Severity.WARN)]
    exact = rows[0]
    assert exact.tokens == node_tokens(rung_tokens(fingerprint("gpt"), Rung.EXACT), "n1")
    assert (exact.kind, exact.outcome, exact.group_id) == (RowKind.NODE, Outcome.NAN, "c1")
    assert (exact.failures, exact.runs, exact.base_failures, exact.base_runs) == (10, 10, 0, 20)
    assert exact.title == "gpt batch=8, on n1"


def test_a_job_that_sometimes_runs_there_is_warned_only() -> None:
    rows = learn_node_rows(trials("n1", {"gpt": 8}) + HEALTHY, {})
    assert rows and {row.severity for row in rows} == {Severity.WARN}


def test_a_node_on_which_everything_fails_and_a_healthy_one_have_no_rows() -> None:
    """The first is drained (`node_actions`)."""
    assert learn_node_rows(trials("n1", dict.fromkeys(WORKLOADS, 10)) + HEALTHY, {}) == []
    assert learn_node_rows(trials("n1", {}) + HEALTHY, {}) == []


def test_what_a_node_did_before_it_was_repaired_does_not_count() -> None:
    before, after = trials("n1", {"gpt": 10}), trials("n1", {}, ran_at=1000.0)
    assert learn_node_rows(before + after + HEALTHY, {"n1": 500.0}) == []
    again = trials("n1", {"gpt": 10}, ran_at=1000.0)
    (row, _) = learn_node_rows(trials("n1", {}) + again + HEALTHY, {"n1": 500.0})
    assert row.runs == 10


def test_the_evidence_of_a_row_are_the_runs_on_the_node_beside_those_on_others() -> None:
    learned_from = trials("n1", {"gpt": 10}) + HEALTHY
    row = learn_node_rows(learned_from, {})[0]
    found = evidence_of(row, learned_from)
    assert {trial.node for trial in found.trials} == {"n1"} and len(found.trials) == row.runs
    assert {trial.node for trial in found.controls} == {"n2", "n3"} and len(found.controls) == row.base_runs
    assert trials_of_node_row(replace(row, tokens=("node=n9",)), learned_from, {}) == ((), ())


def in_context(name: str, seen: list[Trial], **changes: Any) -> list[Trial]:
    return [replace(trial, context_id=name, trial_id=f"{name}{trial.trial_id}", **changes) for trial in seen]


def test_a_row_counts_what_ran_in_the_context_that_it_is_sealed_for() -> None:
    """Before its update the node was in another context, where the same work had never failed."""
    before = in_context("old", trials("n1", {}, runs=7) + HEALTHY)
    after = in_context("new", trials("n1", {"gpt": 10}, ran_at=1000.0) + HEALTHY)
    rows = learn_node_rows(before + after, {})
    assert [(row.group_id, row.failures, row.runs, row.base_runs) for row in rows] == [("new", 10, 10, 20)] * 2
    for row in rows:
        found = evidence_of(row, before + after)
        assert {trial.context_id for trial in (*found.trials, *found.controls)} == {"new"}
        assert (len(found.trials), len(found.controls)) == (row.runs, row.base_runs)


def test_a_job_of_the_same_work_that_never_failed_has_no_row() -> None:
    """The same cells with an older release of torch are another job on the rung `exact`."""
    older = replace(fingerprint("gpt"), versions={"torch": "2.12.0"}).to_json()
    worked = [
        replace(trial, fingerprint=older, trial_id=f"older{trial.trial_id}")
        for trial in trials("n1", {}, runs=2)
        if trial.workload == "gpt"
    ]
    rows = learn_node_rows(trials("n1", {"gpt": 10}) + worked + HEALTHY, {})
    assert {token for row in rows for token in row.tokens if token.startswith("torch=")} == {
        "torch=2.13.0",
        "torch=2.13",
    }


def test_the_evidence_of_a_row_leaves_out_what_the_row_did_not_count() -> None:
    """Neither what the node did before it was returned to service, nor other work with the same tokens."""
    same_tokens = [
        replace(trial, workload="gpt-copy", fingerprint=fingerprint("gpt").to_json(), trial_id=f"copy{trial.trial_id}")
        for node in ("n1", "n2", "n3")
        for trial in trials(node, {}, ran_at=1000.0)
        if trial.workload == "gpt"
    ]
    learned_from = [*trials("n1", {"gpt": 3}), *trials("n1", {"gpt": 10}, ran_at=1000.0), *same_tokens, *HEALTHY]
    returned = {"n1": 500.0}
    for row in learn_node_rows(learned_from, returned):
        found = evidence_of(row, learned_from, returned)
        assert (len(found.trials), len(found.controls)) == (row.runs, row.base_runs) == (10, 20)
