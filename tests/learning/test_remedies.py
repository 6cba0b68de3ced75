"""The remedy of a learned row: the one change with which controls worked, in the direction that the remedy names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pharoah_archetypes.remedies import remedies
from pharoah_learning.evidence import Trial
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.release import LearnedRow
from pharoah_learning.row_remedies import COMMON_DEFAULTS, Remedy
from pharoah_protocol.vocabulary import Outcome, Rung, Scope
from tests.provider_service.test_learning import exact, memory_incompatibility, trials


def optimizer_trials(optimizer: str, length: int, outcome: str) -> list[Trial]:
    return trials(4, "small", outcome, length=length, optimizer=optimizer)


def minor(rows: list[LearnedRow], outcome: Outcome) -> LearnedRow:
    """The row of the server configuration on the rung that has no sizes."""
    (row,) = [one for one in rows if (one.scope, one.rung, one.outcome) == (Scope.SERVER, Rung.MINOR, outcome)]
    return row


def test_each_control_is_compared_with_the_trial_that_it_differs_from_in_one_setting() -> None:
    seen = [
        one
        for length in (128, 1024)
        for optimizer, outcome in (("adamw/fused", "error"), ("adamw/forloop", "ok"))
        for one in optimizer_trials(optimizer, length, outcome)
    ]
    assert minor(learn_incompatibilities(seen), Outcome.ERROR).remedy == Remedy.OTHER_OPTIMIZER


def test_a_change_of_what_worked_anyway_is_no_remedy() -> None:
    """The control differs in the optimizer from the short job, which works, and in two settings from the long one. No
    cell has run in another context, so that nobody knows whether one would help."""
    seen = [
        *optimizer_trials("adamw/fused", 1024, "error"),
        *optimizer_trials("adamw/fused", 128, "ok"),
        *optimizer_trials("adamw/forloop", 128, "ok"),
    ]
    assert minor(learn_incompatibilities(seen), Outcome.ERROR).remedy == Remedy.NONE


def advised(outcome: str, failed: dict[str, object], worked: dict[str, object]) -> int:
    """The remedy for a job that fails in this way with some settings, and works in the same context with others."""
    seen = [*trials(4, "here", outcome, **failed), *trials(4, "here", **worked)]  # type: ignore[arg-type]
    rows = learn_incompatibilities(seen)
    (row,) = [one for one in rows if (one.scope, one.rung, one.outcome) == (Scope.SERVER, Rung.EXACT, outcome)]
    return row.remedy


@pytest.mark.parametrize(
    ("outcome", "failed", "worked", "expected"),
    [
        ("memory", {"attention": "math"}, {"attention": "flash"}, Remedy.FUSED_ATTENTION),
        ("error", {"attention": "flash"}, {"attention": "math"}, Remedy.NONE),
        ("memory", {"length": 1024}, {"length": 128}, Remedy.SMALLER_BATCH),
        ("error", {"length": 128}, {"length": 1024}, Remedy.NONE),
        ("memory", {"batch": 64}, {"batch": 8}, Remedy.SMALLER_BATCH),
        ("error", {"batch": 8}, {"batch": 64}, Remedy.NONE),
        ("error", {"batch": 8}, {}, Remedy.NONE),
        ("nan", {"dtype": "float16"}, {"dtype": "bfloat16"}, Remedy.WIDER_DTYPE),
        ("nan", {"dtype": "float16"}, {}, Remedy.WIDER_DTYPE),
        ("nan", {"dtype": "bfloat16"}, {"dtype": "float16"}, Remedy.NONE),
        ("error", {"dtype": "bfloat16"}, {"dtype": "float16"}, Remedy.SUPPORTED_DTYPE),
        ("error", {"optimizer": "adamw/fused"}, {}, Remedy.OTHER_OPTIMIZER),
        ("error", {"optimizer": "adamw/fused"}, {"optimizer": "sgd/foreach"}, Remedy.NONE),
    ],
)
def test_a_change_is_a_remedy_in_the_direction_that_the_remedy_names(
    outcome: str, failed: dict[str, object], worked: dict[str, object], expected: Remedy
) -> None:
    assert advised(outcome, failed, worked) == expected


@pytest.mark.parametrize(
    ("slow", "fast", "expected"),
    [("bfloat16", "float32", Remedy.FLOAT32), ("float32", "bfloat16", Remedy.OTHER_CONTEXT)],
)
def test_float32_is_advised_to_jobs_that_are_slow_without_it_only(slow: str, fast: str, expected: Remedy) -> None:
    """Other work is as fast as elsewhere, so that the node is not slow for everything."""
    seen = [
        *trials(3, "old", seconds=0.8, dtype=slow),
        *trials(3, "new", seconds=0.1, dtype=slow),
        *(one for context in ("old", "new") for one in trials(3, context, seconds=0.1, dtype=fast)),
    ]
    row = exact(learn_incompatibilities(seen), "old", dtype=slow)
    assert (row.outcome, row.remedy) == (Outcome.SLOW, expected)


def test_another_context_is_advised_where_two_nodes_have_shown_that_the_same_cell_works_there() -> None:
    seen = memory_incompatibility(5, 20)
    assert exact(learn_incompatibilities(seen), "small", attention="math").remedy == Remedy.OTHER_CONTEXT
    one_node = [replace(trial, node="large-0") if trial.context_id == "large" else trial for trial in seen]
    assert exact(learn_incompatibilities(one_node), "small", attention="math").remedy == Remedy.NONE


def test_a_device_model_on_which_everything_fails_is_no_reason_for_another_context_of_it() -> None:
    """Both contexts have the device model of the row; nothing has run on another one."""
    failing = [one for context in ("a", "b") for one in trials(4, context, "crash", length=1024)]
    (row,) = [
        one
        for one in learn_incompatibilities(failing)
        if (one.scope, one.rung) == (Scope.DEVICE, Rung.EXACT) and one.outcome is Outcome.CRASH
    ]
    assert row.remedy == Remedy.NONE


def test_every_remedy_has_a_text_and_none_has_none() -> None:
    assert {int(one) for one in Remedy} - remedies().keys() == {Remedy.NONE}


def test_the_defaults_are_those_of_the_workloads() -> None:
    """A cell computes the same with the defaults written out."""
    import torch

    from pharoah_benchmarks.workloads import build

    losses = []
    for settings in ({}, dict(COMMON_DEFAULTS)):
        torch.manual_seed(0)
        step = build("mlp", settings)
        losses.append([float(step.step()) for _ in range(2)])
        assert {parameter.dtype for parameter in step.model.parameters()} == {torch.float32}
    assert losses[0] == losses[1]
