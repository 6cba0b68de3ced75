"""Rows from what tenants tell: jobs, known by their names alone, that fail in a context for many organisations.

Nobody can check what a tenant tells, so the rule holds whoever lies, as long as at most a fifth of the organisations
do: one organisation has one voice per name and context, and a row needs five failing ones beyond all that could be
lying, and three fifths of those who told, which is half of the honest ones. Such rows warn; they never block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pharoah_learning.evidence import OutcomeReport
from pharoah_learning.release import LearnedRow
from pharoah_protocol.pseudonyms import RUNG

HOSTILE_RATIO = 0.2
LEAST_ORGANISATIONS = 5
FAILING_RATIO = 0.6


def learn_shared_outcomes(votes: Iterable[OutcomeReport]) -> list[LearnedRow]:
    """One row per name and context that fails, of the votes of one period."""
    runs: dict[tuple[int, str, str], dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for vote in votes:
        runs[vote.period, vote.name, vote.context_id][vote.organisation].append(vote.failed)
    rows = []
    for (period, name, context_id), by_organisation in sorted(runs.items()):
        failing = sum(2 * sum(failed) > len(failed) for failed in by_organisation.values())
        if holds(failing, len(by_organisation)):
            rows.append(_row(period, name, context_id, failing, len(by_organisation)))
    return rows


def holds(failing: int, told: int) -> bool:
    """Whether so many failing organisations, of those who told, are enough whatever a fifth of them says."""
    return failing - HOSTILE_RATIO * told >= LEAST_ORGANISATIONS and failing >= FAILING_RATIO * told


def _row(period: int, name: str, context_id: str, failing: int, told: int) -> LearnedRow:
    return LearnedRow(
        "server",
        context_id,
        RUNG,
        (f"name={name}", f"period={period}"),
        "warn",
        "error",
        failing,
        told,
        0,
        0,
        0,
        f"told by {told} organisations",
        kind="name",
    )
