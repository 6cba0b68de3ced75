"""From opened rows to a verdict. Pure functions: the verdict depends on the rows and on nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pharoah._finding_kind import FindingKind
from pharoah._verdict import Finding, Verdict
from pharoah.findings.known_at_other_sizes import KNOWN_AT_OTHER_SIZES
from pharoah.findings.known_in_parts import KNOWN_IN_PARTS
from pharoah.findings.known_on_one_device import KNOWN_ON_ONE_DEVICE
from pharoah.findings.learned_crash import LEARNED_CRASH
from pharoah.findings.learned_error import LEARNED_ERROR
from pharoah.findings.learned_hang import LEARNED_HANG
from pharoah.findings.learned_lost import LEARNED_LOST
from pharoah.findings.learned_memory import LEARNED_MEMORY
from pharoah.findings.learned_nan import LEARNED_NAN
from pharoah.findings.learned_other import LEARNED_OTHER
from pharoah.findings.learned_slow import LEARNED_SLOW
from pharoah.findings.learned_timeout import LEARNED_TIMEOUT
from pharoah.findings.learned_wrong import LEARNED_WRONG
from pharoah.findings.limit_of_other_nodes import LIMIT_OF_OTHER_NODES
from pharoah.findings.memory_at_other_sizes import MEMORY_AT_OTHER_SIZES
from pharoah.findings.node_confirmed_faulty import NODE_CONFIRMED_FAULTY
from pharoah.findings.other_settings_fail import OTHER_SETTINGS_FAIL
from pharoah.findings.reported_failure import REPORTED_FAILURE
from pharoah.findings.similar_jobs_ran import SIMILAR_JOBS_RAN
from pharoah.sidecar.exchange_answers import Answer, Match
from pharoah_archetypes.ladder import MAX_SIZE_POSITION
from pharoah_archetypes.remedies import remedy
from pharoah_archetypes.rungs import Rung
from pharoah_protocol.monitoring_plan import PLAIN, MonitoringPlan
from pharoah_protocol.tables.query import BATCH_ITEMS, NODE_RUNGS
from pharoah_protocol.tables.rows import VerdictRow
from pharoah_protocol.vocabulary import FindingSeverity, Outcome, RowKind, Scope, Severity, VerdictStatus

ORDER = [
    (Rung.EXACT, Scope.SERVER),
    (Rung.MINOR, Scope.SERVER),
    (Rung.EXACT, Scope.DEVICE),
    (Rung.MINOR, Scope.DEVICE),
    (Rung.ONE_DEVICE, Scope.SERVER),
    (Rung.ONE_DEVICE, Scope.DEVICE),
    (Rung.MAJOR, Scope.SERVER),
    (Rung.MAJOR, Scope.DEVICE),
]
"""Most specific first: what is known about this very configuration beats what is known about similar ones. Rows about
collectives alone are not in it (`_deciding`)."""

_TOO_LITTLE = {
    Rung.MAJOR: "this architecture is known here, but not with this software (dtype, kernels, versions)",
    Rung.COLLECTIVES: "what this job sends between its ranks has run here, but not what they compute",
}
"""Why a row of these rungs that speaks for a job is not enough."""
_SUBJECTS = {
    Rung.ONE_DEVICE: "what one device of this job computes",
    Rung.COLLECTIVES: "what this job sends between its ranks",
}
"""What a finding of these rungs is about; others are about the job."""

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
    Outcome.HANG: LEARNED_HANG,
    Outcome.WRONG: LEARNED_WRONG,
    Outcome.LOST: LEARNED_LOST,
    Outcome.OTHER: LEARNED_OTHER,
}


def verdict_from_rows(answer: Answer, run_id: str, *, hashed: bool = False, size: int = MAX_SIZE_POSITION) -> Verdict:
    """The verdict of the most specific rung that has a row, with what the offer reports about the node.

    `size`: the position of the job in its size classes. A row about larger jobs informs.
    """
    matches = tuple(_as_of_size(match, size) for match in answer.matches)
    return _from_rows(replace(answer, matches=matches), run_id, hashed=hashed).with_findings(*_about_the_node(answer))


def _as_of_size(match: Match, size: int) -> Match:
    if size >= match.row.least_size:
        return match
    return replace(match, row=replace(match.row, severity=Severity.INFO))


def _about_the_node(answer: Answer) -> list[Finding]:
    if not answer.node_state.is_open:
        return []
    return [NODE_CONFIRMED_FAULTY.create()]


def _from_rows(answer: Answer, run_id: str, *, hashed: bool) -> Verdict:
    common: dict[str, Any] = {
        "run_id": run_id,
        "release": answer.served.head.release,
        "epoch": answer.served.head.epoch,
        "sent": {"hashes" if hashed else "inputs": BATCH_ITEMS, "bytes": answer.bytes_sent},
    }
    speaking = tuple(match for match in answer.matches if match.row.severity is not Severity.INFO)
    match = _deciding(speaking)
    if match is None:
        verdict = _from_near_duplicates(speaking, common)
    else:
        sent_worked = any(_is_about_collectives(other) for other in speaking)
        verdict = _from_match(match, sent_worked, common)
    return verdict.with_findings(*_informing(answer.matches, match), *_list_reported(speaking))


def _from_match(match: Match, sent_worked: bool, common: dict[str, Any]) -> Verdict:
    """The verdict of one row. `sent_worked`: what the job sends has run here, in this job or in another one."""
    row, findings = match.row, list[Finding]()
    if row.severity != Severity.OK:
        findings.append(_describe_learned(match))
    elif match.rung in _TOO_LITTLE:
        return Verdict(VerdictStatus.UNKNOWN, reason=_TOO_LITTLE[Rung(match.rung)], **common)
    elif match.rung == Rung.MINOR:
        findings.append(KNOWN_AT_OTHER_SIZES.create(rung=Rung.MINOR))
    elif match.rung == Rung.ONE_DEVICE:
        kind = KNOWN_IN_PARTS if sent_worked else KNOWN_ON_ONE_DEVICE
        findings.append(kind.create(rung=Rung.ONE_DEVICE))
    return Verdict(_STATUS[row.severity], findings=tuple(findings), rung=match.rung, runs=row.runs, **common)


def _informing(matches: tuple[Match, ...], deciding: Match | None) -> list[Finding]:
    """What is known of other jobs of this architecture, or of this job on nodes with other limits, where nothing more
    specific has decided."""
    known = [match for match in matches if match.row.severity is Severity.INFO and _place(match) < len(ORDER)]
    nearest = min(known, key=_place, default=None)
    if nearest is None or (deciding is not None and _place(deciding) < _place(nearest)):
        return []
    kind = OTHER_SETTINGS_FAIL
    if nearest.rung == Rung.EXACT:
        kind = LIMIT_OF_OTHER_NODES
    elif nearest.row.outcome == Outcome.MEMORY:
        kind = MEMORY_AT_OTHER_SIZES
    counted = f"{nearest.row.failures}/{nearest.row.runs} runs: {nearest.row.outcome}"
    return [kind.create(evidence=counted + _name(nearest.row), rung=nearest.rung)]


def _place(match: Match) -> int:
    """The place of a row about an archetype in the order in which such rows decide; behind all for others."""
    place = (Rung(match.rung), Scope(match.scope)) if match.kind == RowKind.ARCHETYPE else None
    return ORDER.index(place) if place in ORDER else len(ORDER)


def plan_of(answer: Answer) -> MonitoringPlan:
    """How the job is to be monitored: the plan of the row that decides about its archetype."""
    match = _choose_of_ladder(answer.matches)
    return MonitoringPlan.unpack(match.row.plan) if match else PLAIN


def _list_reported(matches: tuple[Match, ...]) -> list[Finding]:
    """What other organisations report about this very job: a warning at most."""
    found = [match.row for match in matches if match.kind == RowKind.PSEUDONYM and match.row.severity != Severity.OK]
    return [REPORTED_FAILURE.create(evidence=f"{row.failures} of {row.runs} organisations") for row in found[:1]]


def _from_near_duplicates(matches: tuple[Match, ...], common: dict[str, Any]) -> Verdict:
    """The verdict on a job that has not run here: a warning at most, and only if two bands of its sketch agree."""
    for scope in Scope:
        bands = [match for match in matches if match.kind == RowKind.BAND and match.scope == scope]
        bad = [match for match in bands if match.row.severity != Severity.OK]
        if len(bad) >= AGREEING_BANDS:
            found = (_describe_learned(bad[0]),)
            runs = bad[0].row.runs
            return Verdict(VerdictStatus.WARN, findings=found, rung=NEAR_DUPLICATE, runs=runs, **common)
        if len(bands) >= AGREEING_BANDS:
            reason = "this job itself has not run on nodes like this one"
            return Verdict(VerdictStatus.UNKNOWN, reason=reason, findings=(SIMILAR_JOBS_RAN.create(),), **common)
    return Verdict(VerdictStatus.UNKNOWN, reason="no job similar to this one has run on nodes like this one", **common)


def _deciding(matches: tuple[Match, ...]) -> Match | None:
    """The row that decides: what is known of the job on this very node beats what is known of it on such nodes."""
    on_node = [match for match in matches if match.kind == RowKind.NODE]
    return min(on_node, key=lambda match: NODE_RUNGS.index(Rung(match.rung)), default=_choose_of_ladder(matches))


def _choose_of_ladder(matches: tuple[Match, ...]) -> Match | None:
    """The row about the archetype that decides: the most specific one, or that of the collectives where only parts of
    the job are known and the other part does not rule the job out."""
    ladder = [match for match in matches if match.kind == RowKind.ARCHETYPE and match.rung != Rung.COLLECTIVES]
    best = min(ladder, key=lambda match: ORDER.index((Rung(match.rung), Scope(match.scope))), default=None)
    sent = min(
        filter(_is_about_collectives, matches), key=lambda match: list(Scope).index(Scope(match.scope)), default=None
    )
    if best is None or sent is None:
        return best or sent
    in_parts = best.rung in (Rung.ONE_DEVICE, Rung.MAJOR) and best.row.severity != Severity.BLOCK
    return sent if in_parts and sent.row.severity != Severity.OK else best


def _is_about_collectives(match: Match) -> bool:
    return match.kind == RowKind.ARCHETYPE and match.rung == Rung.COLLECTIVES


def _describe_learned(match: Match) -> Finding:
    """What a learned row says about the job, or about one that is similar."""
    row, of_this_job = match.row, match.kind in (RowKind.ARCHETYPE, RowKind.NODE)
    block = row.severity == Severity.BLOCK and of_this_job
    kind, rung = _KINDS[row.outcome], match.rung if of_this_job else ""
    if row.outcome == Outcome.MEMORY and match.rung != Rung.EXACT and of_this_job:
        kind = MEMORY_AT_OTHER_SIZES  # of a release before 7, which warned
    return kind.create(
        severity=FindingSeverity.BLOCK if block else FindingSeverity.WARN,
        subject=_SUBJECTS.get(Rung(match.rung), "this job") if of_this_job else "a near duplicate of this job",
        evidence=f"{row.failures}/{row.runs} comparable runs{_where(match)}; "
        f"base {row.base_failures}/{row.base_runs}{_name(row)}",
        remedy=remedy(row.remedy),
        rung=rung,
    )


def _where(match: Match) -> str:
    return " on this very node" if match.kind == RowKind.NODE else ""


def _name(row: VerdictRow) -> str:
    """The name under which the provider keeps the evidence, for somebody who asks it."""
    return f"; evidence {row.evidence.hex()}" if any(row.evidence) else ""
