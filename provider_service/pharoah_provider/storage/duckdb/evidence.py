"""Cells of campaigns, results of micro-benchmarks, shared outcomes and revealed jobs."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from pharoah_archetypes import Fingerprint
from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_benchmarks.facts import find_named_device
from pharoah_benchmarks.faults import name_now
from pharoah_learning.evidence import (
    BenchmarkResult,
    DegradedRun,
    EvidenceKind,
    LeftOut,
    OutcomeReport,
    Trial,
    process_died,
)
from pharoah_learning.limits import limit_named
from pharoah_protocol.bounds import is_number
from pharoah_protocol.log.forgotten import ForgetKind, ForgottenEvidence
from pharoah_protocol.telemetry_samples import MAX_VALUE, read_samples
from pharoah_protocol.vocabulary import DeviceKind, Outcome, Purpose
from pharoah_protocol.windows import Window
from pharoah_provider.cell_results import CheckedResult
from pharoah_provider.domain import Node
from pharoah_provider.storage.duckdb.changes import Change
from pharoah_provider.storage.duckdb.database import Database, appending, executing
from pharoah_provider.storage.duckdb.log import DuckLogStore
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_serving.costs import in_thread

SQL = statements("evidence")
FORGOTTEN = "an operator has had it forgotten"
FUTURE = "it is dated later than now: the clock of the provider was wrong then"
UNREADABLE = "its stored row cannot be read"

_FAULT_NAME = re.compile("[a-z][a-z0-9_]{0,63}")

Row = dict[str, Any]
T = TypeVar("T")


class DuckEvidenceStore:
    """See `storage.base.EvidenceStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._log = DuckLogStore(database)

    async def append_cell(self, campaign: str, node: Node, cell: Cell, result: CellResult) -> None:
        await self._db.apply(append_cell(campaign, node, cell, result))

    async def trials(self, before: float = float("inf"), left_out: LeftOut | None = None) -> list[Trial]:
        await self._db.wait_committed()  # what is dated until then may still wait for its commit
        own = await self._db.read(SQL["own_fingerprints"], [before])
        forgotten = ForgottenEvidence.after(await self._log.list_forgotten(before))
        if left_out is not None:
            for row in await self._db.read(SQL["trials_after"], [before]):
                left_out.add(EvidenceKind.TRIAL, row["node"], FUTURE)
        rows = await self._db.read(SQL["trials"], [before])
        return await in_thread(_trials, rows, own, forgotten, left_out)

    async def list_degraded_runs(self, left_out: LeftOut | None = None) -> list[DegradedRun]:
        forgotten = ForgottenEvidence.after(await self._log.list_forgotten())
        rows = await self._db.read(SQL["degraded_runs"])
        return await in_thread(read_evidence, EvidenceKind.DEGRADED_RUN, rows, forgotten, left_out, _read_degraded_run)

    async def append_probes(self, probes: Sequence[BenchmarkResult], purpose: str) -> None:
        await self._db.apply(append_probes(probes, purpose))

    async def baseline_probes(self, left_out: LeftOut | None = None) -> list[BenchmarkResult]:
        forgotten = ForgottenEvidence.after(await self._log.list_forgotten())
        rows = await self._db.read(SQL["baseline_probes"], [Purpose.BASELINE])
        return await in_thread(
            read_evidence, EvidenceKind.BENCHMARK_RESULT, rows, forgotten, left_out, benchmark_result
        )

    async def count_evidence(self, kind: ForgetKind, name: str) -> int:
        return int((await self._db.read(SQL[f"count_evidence_of_{kind}"], {"name": name}))[0]["found"])

    async def put_outcome_report(self, report: OutcomeReport) -> None:
        await self._db.apply(put_outcome_report(report))

    async def outcome_reports(self, period: int) -> list[OutcomeReport]:
        return await in_thread(_outcome_reports, await self._db.read(SQL["outcome_reports"], [period]))


def _outcome_reports(rows: Sequence[Row]) -> list[OutcomeReport]:
    names = ("period", "name", "organisation", "context_id", "failed")
    return [
        OutcomeReport(bytes(row["run_id"]), **{name: row[name] for name in names}, facts=tuple(row["facts"] or ()))
        for row in rows
    ]


def read_evidence(
    kind: EvidenceKind,
    rows: Sequence[Row],
    forgotten: ForgottenEvidence,
    left_out: LeftOut | None,
    read: Callable[[Row], T],
) -> list[T]:
    """What can be read by `read` and is not forgotten; the rest is counted in `left_out`.

    Reading a row takes some ten microseconds, so that a thread reads the evidence of a whole provider.
    """
    left_out, found = LeftOut() if left_out is None else left_out, list[T]()
    for row in rows:
        node = row["node"]
        if forgotten.holds(str(node), row["ran_at"] or 0.0, row.get("result_id") or ""):
            left_out.add(kind, node, FORGOTTEN)
            continue
        try:
            found.append(read(row))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            left_out.add(kind, node, UNREADABLE)
    return found


def _trials(
    rows: Sequence[Row], fingerprints: Sequence[Row], forgotten: ForgottenEvidence, left_out: LeftOut | None
) -> list[Trial]:
    own: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in fingerprints:
        own[row["workload"], row["settings"]].append(row["fingerprint"])
    return read_evidence(EvidenceKind.TRIAL, rows, forgotten, left_out, lambda row: _trial(row, own))


def _trial(row: Row, own: Mapping[tuple[str, str], Sequence[str]]) -> Trial:
    outcome, device = Outcome(row["outcome"]), DeviceKind(row["device"])
    return Trial(
        workload=row["workload"],
        settings=json.loads(row["settings"]),
        context_id=row["context_id"],
        device_id=row["device_id"],
        outcome=outcome,
        step_seconds=tuple(row["step_seconds"]),
        fingerprint=row["fingerprint"],
        node=row["node"],
        own_fingerprints=tuple(own.get((row["workload"], row["settings"]), ())),
        trial_id=row["result_id"],
        ran_at=row["ran_at"],
        device=device,
        context_device=DeviceKind(row["context_device"]),
        block=row["block"],
        losses=tuple(row["losses"] or ()),
        seed=row["seed"] or 0,
        versions=_versions(row["context"]),
        facts=tuple(row["facts"] or ()),
        limit=limit_named(outcome, row["detail"] or "", device),
    )


def _versions(context: str) -> dict[str, str]:
    """The versions that a cell read back; none for results from before they were recorded."""
    versions = json.loads(context).get("versions", {})
    return {str(name): str(version) for name, version in versions.items()}


def _read_degraded_run(row: Row) -> DegradedRun:
    stored = json.loads(row["windows"])
    if not isinstance(stored, list):
        raise ValueError("windows: expected a list")
    windows = tuple(map(Window.from_data, stored))
    return DegradedRun(
        fault=_fault(row["degradation"]),
        windows=windows,
        died=process_died(row["outcome"]),
        node=row["node"],
        outcome=Outcome(row["outcome"]),
        dose=_amount(row["dose"]),
        onset_seconds=_amount(row["onset_seconds"]),
        telemetry=tuple(read_samples(json.loads(row["telemetry"]))),
        archetype=_archetype(row["fingerprint"]),
    )


def _archetype(fingerprint: str | None) -> str:
    """The archetype of a fingerprint; empty without one that can be read."""
    try:
        return Fingerprint.from_json(fingerprint).archetype if fingerprint else ""
    except (ValueError, TypeError, KeyError):
        return ""


def _amount(stored: Any) -> float:
    if not is_number(stored) or abs(stored) > MAX_VALUE:
        raise ValueError(f"{stored!r:.40} is not an amount")
    return stored


def _fault(stored: str) -> str:
    """The name of a fault today. Raises ValueError for what is none, and never was."""
    if not _FAULT_NAME.fullmatch(stored):
        raise ValueError(f"{stored!r:.80} is not the name of a fault")
    return name_now(stored)


def benchmark_result(row: Mapping[str, Any]) -> BenchmarkResult:
    """A row of the table `probes`."""
    names = ("order_id", "node", "benchmark", "beside_job", "started_at", "ended_at")
    answer = {"correct": row["correct"], "digest": row["digest"] or ""}
    return BenchmarkResult(**{name: row[name] for name in names}, seconds=tuple(row["seconds"]), **answer)


def settings_of(cell: Cell) -> str:
    """The settings as they are stored: equal settings have equal texts."""
    return json.dumps(cell.settings, sort_keys=True)


def put_outcome_report(report: OutcomeReport) -> Change:
    """The change that stores how a run ended under the job's pseudonym; the first report about a run stands."""
    names = ("run_id", "period", "name", "organisation", "context_id", "failed")
    values = [getattr(report, name) for name in names]
    return executing(SQL["put_outcome_report"], [*values, time.time(), list(report.facts)])


def append_cell(campaign: str, node: Node, cell: Cell, result: CellResult, block: str = "") -> Change:
    """The change that stores the result of a cell. `block`: the campaign and the number of the block."""
    values = {
        "campaign": campaign,
        "cell": cell.id,
        "node": node.node,
        "context_id": node.facts_id,
        "device_id": node.device_id,
        "workload": cell.workload,
        "settings": settings_of(cell),
        "degradation": cell.degradation.fault if cell.degradation else "",
        "outcome": result.outcome,
        "detail": result.detail,
        "step_seconds": result.step_seconds,
        "windows": "",
        "fingerprint": result.fingerprint,
        "context": json.dumps(result.context),
        "ran_at": time.time(),
        "device": result.device,
        "context_device": find_named_device(node.server_facts),
        "result_id": secrets.token_hex(8),
        "block": block,
        "losses": list(result.losses),
        "seed": cell.repeat,
        "facts": list(node.server_facts),
        "dose": cell.degradation.dose if cell.degradation else 0.0,
        "onset_seconds": cell.degradation.onset_seconds if cell.degradation else 0.0,
        "telemetry": "",
    }

    def append(connection: duckdb.DuckDBPyConnection) -> None:
        columns = _long_columns(result)  # the thread that writes makes them: they grow with the result
        executing(SQL["append_cell"], list({**values, **columns}.values()))(connection)

    return append


def _long_columns(result: CellResult) -> dict[str, str]:
    if isinstance(result, CheckedResult):
        return {"windows": result.windows_json, "telemetry": result.telemetry_json}
    return {
        "windows": json.dumps([asdict(window) for window in result.windows]),
        "telemetry": json.dumps([asdict(sample) for sample in result.telemetry]),
    }


def append_probes(probes: Sequence[BenchmarkResult], purpose: str) -> Change:
    """The change that stores results of micro-benchmarks."""
    names = ("order_id", "node", "benchmark", "beside_job", "started_at", "ended_at", "error", "digest")
    columns: dict[str, Sequence[Any]] = {name: [getattr(probe, name) for probe in probes] for name in names}
    seconds = [list(probe.seconds) for probe in probes]
    correct = pa.array([probe.correct for probe in probes], pa.bool_())
    return appending("probes", {**columns, "seconds": seconds, "correct": correct, "purpose": [purpose] * len(probes)})
