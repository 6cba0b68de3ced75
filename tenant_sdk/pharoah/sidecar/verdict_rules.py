"""From opened rows to a verdict. Pure functions: the verdict depends on the rows and on nothing else."""

from __future__ import annotations

from typing import Any

from pharoah._finding_kind import FindingKind
from pharoah._verdict import Finding, Verdict
from pharoah.findings.known_at_other_sizes import KNOWN_AT_OTHER_SIZES
from pharoah.findings.learned_crash import LEARNED_CRASH
from pharoah.findings.learned_error import LEARNED_ERROR
from pharoah.findings.learned_memory import LEARNED_MEMORY
from pharoah.findings.learned_nan import LEARNED_NAN
from pharoah.findings.learned_slow import LEARNED_SLOW
from pharoah.findings.learned_timeout import LEARNED_TIMEOUT
from pharoah.findings.memory_at_other_sizes import MEMORY_AT_OTHER_SIZES
from pharoah.findings.node_confirmed_slow import NODE_CONFIRMED_SLOW
from pharoah.findings.reported_failure import REPORTED_FAILURE
from pharoah.findings.similar_jobs_ran import SIMILAR_JOBS_RAN
from pharoah.sidecar.exchange_answers import Answer, Match
from pharoah_archetypes.remedies import remedy
from pharoah_archetypes.rungs import Rung
from pharoah_protocol.monitoring_plan import PLAIN, MonitoringPlan
from pharoah_protocol.tables.query import BATCH_ITEMS
from pharoah_protocol.vocabulary import FindingSeverity, Outcome, RowKind, Scope, Severity, VerdictStatus

ORDER = [
    (Rung.EXACT, Scope.SERVER),
    (Rung.MINOR, Scope.SERVER),
    (Rung.EXACT, Scope.DEVICE),
    (Rung.MINOR, Scope.DEVICE),
    (Rung.MAJOR, Scope.SERVER),
    (Rung.MAJOR, Scope.DEVICE),
]
"""Most specific first: what is known about this very configuration beats what is known about similar ones."""

AGREEING_BANDS = 2
"""Bands of a sketch that must agree before anything is concluded from near duplicates (docs/exchange.md)."""
NEAR_DUPLICATE = "near-duplicate"
"""The rung of a verdict that rests on similar jobs only."""

_STATUS = {
    Severity.OK: VerdictStatus.COMPATIBLE,
    Severity.WARN: VerdictStatus.WARN,
    Severity.BLOCK: VerdictStatus.INCOMPATIBLE,
}
_KINDS: dict[Outcome, FindingKind] = {
    Outcome.MEMORY: LEARNED_MEMORY,
    Outcome.ERROR: LEARNED_ERROR,
    Outcome.NAN: LEARNED_NAN,
    Outcome.SLOW: LEARNED_SLOW,
    Outcome.TIMEOUT: LEARNED_TIMEOUT,
    Outcome.CRASH: LEARNED_CRASH,
}


def verdict_from_rows(answer: Answer, run_id: str, *, hashed: bool = False) -> Verdict:
    """The verdict of the most specific rung that has a row, with what the offer reports about the node."""
    return _from_rows(answer, run_id, hashed=hashed).with_findings(*_about_the_node(answer))


def _about_the_node(answer: Answer) -> list[Finding]:
    if not answer.node_state.is_open:
        return []
    return [NODE_CONFIRMED_SLOW.found()]


def _from_rows(answer: Answer, run_id: str, *, hashed: bool) -> Verdict:
    common: dict[str, Any] = {
        "run_id": run_id,
        "release": answer.served.head.release,
        "epoch": answer.served.head.epoch,
        "sent": {"hashes" if hashed else "inputs": BATCH_ITEMS, "bytes": answer.bytes_sent},
    }
    match = _most_specific(answer.matches)
    if match is None:
        return _from_near_duplicates(answer.matches, common).with_findings(*_reported(answer.matches))
    if match.rung == Rung.MAJOR and match.row.severity == Severity.OK:
        return Verdict(
            VerdictStatus.UNKNOWN,
            reason="this architecture is known here, but not with this software (dtype, kernels, versions)",
            **common,
        )
    row = match.row
    findings = () if row.severity == Severity.OK else (_learned(match),)
    if row.severity == Severity.OK and match.rung == Rung.MINOR:
        findings = (KNOWN_AT_OTHER_SIZES.found(rung=Rung.MINOR),)
    verdict = Verdict(_STATUS[row.severity], findings=findings, rung=match.rung, runs=row.runs, **common)
    return verdict.with_findings(*_reported(answer.matches))


def plan_of(answer: Answer) -> MonitoringPlan:
    """How the job is to be monitored: the plan of the row that decided."""
    match = _most_specific(answer.matches)
    return MonitoringPlan.unpack(match.row.plan) if match else PLAIN


def _reported(matches: tuple[Match, ...]) -> list[Finding]:
    """What other organisations report about this very job: a warning at most."""
    found = [match.row for match in matches if match.kind == RowKind.PSEUDONYM and match.row.severity != Severity.OK]
    return [REPORTED_FAILURE.found(evidence=f"{row.failures} of {row.runs} organisations") for row in found[:1]]


def _from_near_duplicates(matches: tuple[Match, ...], common: dict[str, Any]) -> Verdict:
    """The verdict on a job that has not run here: a warning at most, and only if two bands of its sketch agree."""
    for scope in Scope:
        bands = [match for match in matches if match.kind == RowKind.BAND and match.scope == scope]
        bad = [match for match in bands if match.row.severity != Severity.OK]
        if len(bad) >= AGREEING_BANDS:
            found = (_learned(bad[0]),)
            runs = bad[0].row.runs
            return Verdict(VerdictStatus.WARN, findings=found, rung=NEAR_DUPLICATE, runs=runs, **common)
        if len(bands) >= AGREEING_BANDS:
            reason = "this job itself has not run on nodes like this one"
            return Verdict(VerdictStatus.UNKNOWN, reason=reason, findings=(SIMILAR_JOBS_RAN.found(),), **common)
    return Verdict(VerdictStatus.UNKNOWN, reason="no job similar to this one has run on nodes like this one", **common)


def _most_specific(matches: tuple[Match, ...]) -> Match | None:
    ladder = [match for match in matches if match.kind == RowKind.ARCHETYPE]
    ranked = sorted(ladder, key=lambda match: ORDER.index((Rung(match.rung), Scope(match.scope))))
    return ranked[0] if ranked else None


def _learned(match: Match) -> Finding:
    """What a learned row says about the job, or about one that is similar."""
    row, of_this_job = match.row, match.kind == RowKind.ARCHETYPE
    block = row.severity == Severity.BLOCK and of_this_job
    kind, rung = _KINDS[row.outcome], match.rung if of_this_job else ""
    if row.outcome == Outcome.MEMORY and match.rung != Rung.EXACT and of_this_job:
        kind = MEMORY_AT_OTHER_SIZES
    return kind.found(
        severity=FindingSeverity.BLOCK if block else FindingSeverity.WARN,
        subject="this job" if of_this_job else "a near duplicate of this job",
        evidence=f"{row.failures}/{row.runs} comparable runs; base {row.base_failures}/{row.base_runs}",
        remedy=remedy(row.remedy),
        rung=rung,
    )
