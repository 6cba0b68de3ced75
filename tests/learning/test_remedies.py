"""The remedy of a learned row: the one setting that has to change, as controls show."""

from __future__ import annotations

from pharoah_learning.evidence import Trial
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.release import LearnedRow
from pharoah_protocol.vocabulary import Outcome, Rung, Scope
from tests.provider_service.test_learning import trials

SMALLER_BATCH, OTHER_CONTEXT, OTHER_OPTIMIZER = 4, 5, 6
"""Codes of `remedies.toml`."""


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
    assert minor(learn_incompatibilities(seen), Outcome.ERROR).remedy == OTHER_OPTIMIZER


def test_a_change_of_what_worked_anyway_is_no_remedy() -> None:
    """The control differs in the optimizer from the short job, which works, and in two settings from the long one."""
    seen = [
        *optimizer_trials("adamw/fused", 1024, "error"),
        *optimizer_trials("adamw/fused", 128, "ok"),
        *optimizer_trials("adamw/forloop", 128, "ok"),
    ]
    assert minor(learn_incompatibilities(seen), Outcome.ERROR).remedy == OTHER_CONTEXT
