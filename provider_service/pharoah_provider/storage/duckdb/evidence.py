"""Cells of campaigns, results of micro-benchmarks, shared outcomes and revealed jobs."""

from __future__ import annotations

import json
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from pharoah_archetypes import Fingerprint
from pharoah_benchmarks.campaign.cell import Cell, CellResult, DryCell
from pharoah_benchmarks.facts import named_device
from pharoah_learning.evidence import (
    BenchmarkResult,
    DegradedRun,
    EvidenceKind,
    LeftOut,
    OutcomeReport,
    Trial,
    process_died,
)
from pharoah_protocol.log.forgotten import ForgetKind, ForgottenEvidence
from pharoah_protocol.vocabulary import DeviceKind, Fault, Outcome, Purpose
from pharoah_protocol.windows import Window
from pharoah_provider.domain import Node, Run
from pharoah_provider.storage.duckdb.database import Change, Database, appending, executing
from pharoah_provider.storage.duckdb.log import DuckLogStore
from pharoah_provider.storage.duckdb.statements import statements

SQL = statements("evidence")
FORGOTTEN = "an operator has had it forgotten"
UNREADABLE = "its stored row cannot be read"

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
        own: dict[tuple[str, str], list[str]] = defaultdict(list)
        for row in await self._db.read(SQL["own_fingerprints"], [before]):
            own[row["workload"], row["settings"]].append(row["fingerprint"])
        forgotten = ForgottenEvidence.after(await self._log.forgotten(before))
        rows = await self._db.read(SQL["trials"], [before])
        return list(_read(EvidenceKind.TRIAL, rows, forgotten, left_out, lambda row: _trial(row, own)))

    async def degraded_runs(self, left_out: LeftOut | None = None) -> list[DegradedRun]:
        forgotten = ForgottenEvidence.after(await self._log.forgotten())
        rows = await self._db.read(SQL["degraded_runs"])
        return list(_read(EvidenceKind.DEGRADED_RUN, rows, forgotten, left_out, _degraded_run))

    async def append_probes(self, probes: Sequence[BenchmarkResult], purpose: str) -> None:
        await self._db.apply(append_probes(probes, purpose))

    async def baseline_probes(self, left_out: LeftOut | None = None) -> list[BenchmarkResult]:
        forgotten = ForgottenEvidence.after(await self._log.forgotten())
        rows = [
            row | {"ran_at": row["ended_at"]} for row in await self._db.read(SQL["baseline_probes"], [Purpose.BASELINE])
        ]
        return list(_read(EvidenceKind.BENCHMARK_RESULT, rows, forgotten, left_out, _benchmark_result))

    async def put_own_fingerprint(self, cell: Cell, software: str, dry: DryCell) -> None:
        values = [cell.workload, _settings_of(cell), software, dry.fingerprint, dry.reason, time.time()]
        await self._db.execute(SQL["put_own_fingerprint"], values)

    async def missing_dry_runs(self, cells: Sequence[Cell], software: str) -> list[Cell]:
        done = {(row["workload"], row["settings"]) for row in await self._db.read(SQL["dry_run_contents"], [software])}
        wanted = {(cell.workload, _settings_of(cell)): cell for cell in cells}
        return [cell for content, cell in wanted.items() if content not in done]

    async def count_evidence(self, kind: ForgetKind, name: str) -> int:
        return int((await self._db.read(SQL[f"count_evidence_of_{kind}"], {"name": name}))[0]["found"])

    async def put_outcome_report(self, report: OutcomeReport) -> None:
        await self._db.apply(put_outcome_report(report))

    async def outcome_reports(self, period: int) -> list[OutcomeReport]:
        names = ("period", "name", "organisation", "context_id", "failed")
        return [
            OutcomeReport(bytes(row["run_id"]), **{name: row[name] for name in names})
            for row in await self._db.read(SQL["outcome_reports"], [period])
        ]

    async def put_revealed(self, run: Run, context_id: str, fingerprint: str) -> None:
        await self._db.execute(SQL["put_revealed"], [run.run_id, run.tenant, context_id, fingerprint, time.time()])


def _read(
    kind: EvidenceKind,
    rows: Sequence[Row],
    forgotten: ForgottenEvidence,
    left_out: LeftOut | None,
    read: Callable[[Row], T],
) -> Iterator[T]:
    """What can be read and is not forgotten; the rest is counted."""
    left_out = LeftOut() if left_out is None else left_out
    for row in rows:
        node = row["node"]
        if forgotten.holds(str(node), row["ran_at"] or 0.0, row.get("result_id") or ""):
            left_out.add(kind, node, FORGOTTEN)
            continue
        try:
            yield read(row)
        except (KeyError, TypeError, ValueError, RecursionError):
            left_out.add(kind, node, UNREADABLE)


def _trial(row: Row, own: Mapping[tuple[str, str], Sequence[str]]) -> Trial:
    return Trial(
        workload=row["workload"],
        settings=json.loads(row["settings"]),
        context_id=row["context_id"],
        device_id=row["device_id"],
        outcome=Outcome(row["outcome"]),
        step_seconds=tuple(row["step_seconds"]),
        fingerprint=row["fingerprint"],
        node=row["node"],
        own_fingerprints=tuple(own.get((row["workload"], row["settings"]), ())),
        trial_id=row["result_id"],
        ran_at=row["ran_at"],
        device=DeviceKind(row["device"]),
        context_device=DeviceKind(row["context_device"]),
        block=row["block"],
    )


def _degraded_run(row: Row) -> DegradedRun:
    stored = json.loads(row["windows"])
    if not isinstance(stored, list):
        raise ValueError("windows: expected a list")
    windows = tuple(map(Window.from_data, stored))
    return DegradedRun(
        Fault(row["degradation"]),
        windows,
        process_died(row["outcome"]),
        node=row["node"],
        archetype=_archetype(row["fingerprint"]),
    )


def _archetype(fingerprint: str | None) -> str:
    """The archetype of a fingerprint; empty without one that can be read."""
    try:
        return Fingerprint.from_json(fingerprint).archetype if fingerprint else ""
    except (ValueError, TypeError, KeyError):
        return ""


def _benchmark_result(row: Row) -> BenchmarkResult:
    names = ("order_id", "node", "benchmark", "beside_job", "started_at", "ended_at")
    return BenchmarkResult(**{name: row[name] for name in names}, seconds=tuple(row["seconds"]))


def _settings_of(cell: Cell) -> str:
    """The settings as they are stored: equal settings have equal texts."""
    return json.dumps(cell.settings, sort_keys=True)


def put_outcome_report(report: OutcomeReport) -> Change:
    """The change that stores how a run ended under the job's pseudonym; the first report about a run stands."""
    names = ("run_id", "period", "name", "organisation", "context_id", "failed")
    return executing(SQL["put_outcome_report"], [*(getattr(report, name) for name in names), time.time()])


def append_cell(campaign: str, node: Node, cell: Cell, result: CellResult, block: str = "") -> Change:
    """The change that stores the result of a cell. `block`: the campaign and the number of the block."""
    values = {
        "campaign": campaign,
        "cell": cell.id,
        "node": node.node,
        "context_id": node.context_id,
        "device_id": node.device_id,
        "workload": cell.workload,
        "settings": _settings_of(cell),
        "degradation": cell.degradation.kind if cell.degradation else "",
        "outcome": result.outcome,
        "detail": result.detail,
        "step_seconds": list(result.step_seconds),
        "windows": json.dumps([asdict(window) for window in result.windows]),
        "fingerprint": result.fingerprint,
        "context": json.dumps(result.context),
        "ran_at": time.time(),
        "device": result.device,
        "context_device": named_device(node.server_facts),
        "result_id": secrets.token_hex(8),
        "block": block,
    }
    return executing(SQL["append_cell"], list(values.values()))


def append_probes(probes: Sequence[BenchmarkResult], purpose: str) -> Change:
    """The change that stores results of micro-benchmarks."""
    names = ("order_id", "node", "benchmark", "beside_job", "started_at", "ended_at", "error")
    columns: dict[str, Sequence[Any]] = {name: [getattr(probe, name) for probe in probes] for name in names}
    seconds = [list(probe.seconds) for probe in probes]
    return appending("probes", {**columns, "seconds": seconds, "purpose": [purpose] * len(probes)})
