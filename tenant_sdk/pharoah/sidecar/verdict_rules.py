"""From opened rows to a verdict. Pure: what the tenant is told depends on the rows and nothing else."""

from __future__ import annotations

from typing import Any

from pharoah._verdict import Finding, Verdict
from pharoah.sidecar.exchange_client import Answer, Match
from pharoah_archetypes.remedies import remedy
from pharoah_protocol.monitoring_plan import PLAIN, MonitoringPlan
from pharoah_protocol.tables.query import BATCH_ITEMS
from pharoah_protocol.vocabulary import IncidentState

ORDER = [
    ("exact", "server"),
    ("minor", "server"),
    ("exact", "device"),
    ("minor", "device"),
    ("major", "server"),
    ("major", "device"),
]
"""Most specific first: what is known of this very configuration beats what is known of similar ones."""

AGREEING_BANDS = 2

_STATUS = {"ok": "compatible", "warn": "warn", "avoid": "warn", "block": "incompatible"}
_OUTCOME = {
    "memory": "runs out of memory here",
    "error": "fails with an error here",
    "nan": "loses its numbers (NaN or infinity)",
    "slow": "runs much slower here than on comparable nodes",
    "timeout": "does not finish in time here",
    "crash": "crashes here",
}


def verdict_from_rows(answer: Answer, run_id: str, *, hashed: bool = False) -> Verdict:
    """The verdict of the most specific rung that knows anything, and what the offer says of the node."""
    return _from_rows(answer, run_id, hashed=hashed).with_findings(*_of_node(answer))


def _of_node(answer: Answer) -> list[Finding]:
    if answer.node_state is not IncidentState.CONFIRMED:
        return []
    return [Finding("warn", "the provider has confirmed that this node is slow", "an open incident of the node")]


def _from_rows(answer: Answer, run_id: str, *, hashed: bool) -> Verdict:
    common = {
        "run_id": run_id,
        "release": answer.served.head.release,
        "epoch": answer.served.head.epoch,
        "sent": {"hashes" if hashed else "inputs": BATCH_ITEMS, "bytes": answer.bytes_sent},
    }
    match = _most_specific(answer.matches)
    if match is None:
        return _of_the_like(answer.matches, common).with_findings(*_told_by_tenants(answer.matches))
    if match.rung == "major" and match.row.severity == "ok":
        return Verdict(
            "unknown",
            reason="this architecture is known here, but not with this software (dtype, kernels, versions)",
            **common,  # type: ignore[arg-type]
        )
    row = match.row
    findings = () if row.severity == "ok" else (_finding(match),)
    status = _STATUS[row.severity]
    if row.severity == "ok" and match.rung == "minor":
        findings = (Finding("info", "known at other sizes only: memory at this size was not judged", rung="minor"),)
    verdict = Verdict(status, findings=findings, rung=match.rung, runs=row.runs, **common)  # type: ignore[arg-type]
    return verdict.with_findings(*_told_by_tenants(answer.matches))


def _told_by_tenants(matches: tuple[Match, ...]) -> list[Finding]:
    """What other tenants have told of the same job: a warning at most."""
    rows = [match.row for match in matches if match.kind == "name" and match.row.severity != "ok"][:1]
    return [
        Finding("warn", "this job fails here, others tell", f"{row.failures} of {row.runs} organisations", rung="told")
        for row in rows
    ]


def plan_of(answer: Answer) -> MonitoringPlan:
    """How the job is to be watched: the plan of the row that decided."""
    match = _most_specific(answer.matches)
    return MonitoringPlan.unpack(match.row.plan) if match else PLAIN


def _of_the_like(matches: tuple[Match, ...], common: dict[str, Any]) -> Verdict:
    """What near duplicates tell of a job nobody has run: a warning at most, and only if two of its bands agree."""
    nothing = "nothing like this job has run on nodes like this one"
    for scope in ("server", "device"):
        bands = [match for match in matches if match.kind == "band" and match.scope == scope]
        bad = [match for match in bands if match.row.severity != "ok"]
        if len(bad) >= AGREEING_BANDS:
            return Verdict("warn", findings=(_finding(bad[0]),), rung="alike", runs=bad[0].row.runs, **common)
        if len(bands) >= AGREEING_BANDS:
            alike = Finding("info", "jobs much like this one have run on nodes like this one", rung="alike")
            reason = "this job itself has not run on nodes like this one"
            return Verdict("unknown", reason=reason, findings=(alike,), **common)
    return Verdict("unknown", reason=nothing, **common)


def _most_specific(matches: tuple[Match, ...]) -> Match | None:
    ladder = [match for match in matches if match.kind == "arch"]
    ranked = sorted(ladder, key=lambda match: ORDER.index((match.rung, match.scope)))
    return ranked[0] if ranked else None


def _finding(match: Match) -> Finding:
    row = match.row
    evidence = f"{row.failures}/{row.runs} comparable runs; base {row.base_failures}/{row.base_runs}"
    severity = "block" if row.severity == "block" and match.kind == "arch" else "warn"
    subject = "a job much like this one" if match.kind == "band" else "this job"
    what = f"{subject} {_OUTCOME.get(row.outcome, row.outcome)}"
    if row.outcome == "memory" and match.rung != "exact" and match.kind == "arch":
        what = "other sizes of this job run out of memory here; this size was not tried"
    return Finding(severity, what, evidence, remedy(row.remedy), match.rung)
