"""Rows from outcomes that tenants share: jobs, known by pseudonyms alone, that fail in a context for many tenants.

Nobody can check a shared outcome. The rule below is right as long as at most a fifth of the organisations that report a
pseudonym in a context send false outcomes, and as long as fewer than 5 and a twentieth of all organisations that share
do: an organisation counts once per pseudonym and context, and a row needs

* five failing organisations beyond a fifth of those that reported the pseudonym there, which could be false;
* three fifths of all that reported it there, which is half of the honest ones;
* five failing organisations beyond a twentieth of all that share anything, in this period or in the one before it.

Seven malicious organisations of two hundred make no row, also where nobody else has reported. Such rows warn; they
never block. Where callers are identified by a token file, every account without a `/` in its name is an organisation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pharoah_learning.evidence import OutcomeReport
from pharoah_learning.release import LearnedRow
from pharoah_protocol.pseudonyms import RUNG
from pharoah_protocol.vocabulary import Outcome, Provenance, RowKind, Rung, Scope, Severity

HOSTILE_RATIO = 0.2
"""Share of the organisations that may send false outcomes (ADR 13)."""
MIN_ORGANISATIONS = 5
FAILING_RATIO = 0.6
SHARING_RATIO = 0.05
"""Share of all organisations that share which may be malicious and report the same pseudonym together (ADR 21)."""


def learn_shared_outcomes(reports: Iterable[OutcomeReport], earlier: Iterable[OutcomeReport] = ()) -> list[LearnedRow]:
    """One row per pseudonym and context that fails, from the reports of one period.

    `earlier` are the reports of the period before it: how many organisations share is not known on the first day of a
    period.
    """
    reports = list(reports)
    sharing = max(_organisations(reports), _organisations(earlier))
    runs: dict[tuple[int, str, str], dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for report in reports:
        runs[report.period, report.name, report.context_id][report.organisation].append(report.failed)
    rows = []
    for (period, name, context_id), by_organisation in sorted(runs.items()):
        failing = sum(2 * sum(failed) > len(failed) for failed in by_organisation.values())
        if holds(failing, len(by_organisation), sharing):
            rows.append(_row(period, name, context_id, failing, len(by_organisation)))
    return rows


def holds(failing: int, reporting: int, sharing: int) -> bool:
    """Whether so many failing organisations are enough: of those `reporting` this pseudonym in this context, and of all
    `sharing` anything."""
    beyond_false = failing - HOSTILE_RATIO * reporting >= MIN_ORGANISATIONS
    beyond_sharing = failing - SHARING_RATIO * sharing >= MIN_ORGANISATIONS
    return beyond_false and beyond_sharing and failing >= FAILING_RATIO * reporting


def _organisations(reports: Iterable[OutcomeReport]) -> int:
    return len({report.organisation for report in reports})


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
        provenance=Provenance.ORGANISATIONS,
    )
