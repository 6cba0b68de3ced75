"""Rows from outcomes that tenants share: jobs, known by pseudonyms alone, that fail in a context for many tenants.

Nobody can check a shared outcome. The rule below is right as long as at most a fifth of the organisations send false
ones: an organisation counts once per pseudonym and context, and a row needs five failing organisations beyond those
that could be false, and three fifths of all that reported, which is half of the honest ones. Such rows warn; they never
block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pharoah_learning.evidence import OutcomeReport
from pharoah_learning.release import LearnedRow
from pharoah_protocol.pseudonyms import RUNG
from pharoah_protocol.vocabulary import Outcome, RowKind, Rung, Scope, Severity

HOSTILE_RATIO = 0.2
"""Share of the organisations that may send false outcomes (ADR 13)."""
LEAST_ORGANISATIONS = 5
FAILING_RATIO = 0.6


def learn_shared_outcomes(reports: Iterable[OutcomeReport]) -> list[LearnedRow]:
    """One row per pseudonym and context that fails, from the reports of one period."""
    runs: dict[tuple[int, str, str], dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for report in reports:
        runs[report.period, report.name, report.context_id][report.organisation].append(report.failed)
    rows = []
    for (period, name, context_id), by_organisation in sorted(runs.items()):
        failing = sum(2 * sum(failed) > len(failed) for failed in by_organisation.values())
        if holds(failing, len(by_organisation)):
            rows.append(_row(period, name, context_id, failing, len(by_organisation)))
    return rows


def holds(failing: int, reporting: int) -> bool:
    """Whether so many failing organisations of those that reported are enough, whatever a fifth of them sends."""
    return failing - HOSTILE_RATIO * reporting >= LEAST_ORGANISATIONS and failing >= FAILING_RATIO * reporting


def _row(period: int, name: str, context_id: str, failing: int, reporting: int) -> LearnedRow:
    return LearnedRow(
        scope=Scope.SERVER,
        group_id=context_id,
        rung=Rung(RUNG),
        tokens=(f"name={name}", f"period={period}"),
        severity=Severity.WARN,
        outcome=Outcome.ERROR,
        failures=failing,
        runs=reporting,
        base_failures=0,
        base_runs=0,
        remedy=0,
        title=f"reported by {reporting} organisations",
        kind=RowKind.PSEUDONYM,
    )
