"""Cells of campaigns, results of micro-benchmarks, shared outcomes and revealed jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pharoah_benchmarks.campaign.cell import Cell, Outcome
from pharoah_learning.evidence import BenchmarkResult, DegradedRun, OutcomeReport, Trial, process_died
from pharoah_protocol.vocabulary import Purpose
from pharoah_protocol.windows import Window
from pharoah_provider.domain import Node, Run
from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.statements import statements

SQL = statements("evidence")


class DuckEvidenceStore:
    """See `storage.base.EvidenceStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def append_cell(self, campaign: str, node: Node, cell: Cell, outcome: Outcome) -> None:
        values = {
            "campaign": campaign,
            "cell": cell.id,
            "node": node.node,
            "context_id": node.context_id,
            "device_id": node.device_id,
            "workload": cell.workload,
            "settings": json.dumps(cell.settings, sort_keys=True),
            "degradation": cell.degradation.kind if cell.degradation else "",
            "outcome": outcome.outcome,
            "detail": outcome.detail,
            "step_seconds": list(outcome.step_seconds),
            "windows": json.dumps([asdict(window) for window in outcome.windows]),
            "fingerprint": outcome.fingerprint,
            "context": json.dumps(outcome.context),
            "ran_at": time.time(),
        }
        await self._db.execute(SQL["append_cell"], list(values.values()))

    async def trials(self, before: float = float("inf")) -> list[Trial]:
        return [
            Trial(
                row["workload"],
                json.loads(row["settings"]),
                row["context_id"],
                row["device_id"],
                row["outcome"],
                tuple(row["step_seconds"]),
                row["fingerprint"],
            )
            for row in await self._db.read(SQL["trials"], [before])
        ]

    async def degraded_runs(self) -> list[DegradedRun]:
        return [
            DegradedRun(
                row["degradation"],
                tuple(map(Window.from_data, json.loads(row["windows"]))),
                process_died(row["outcome"]),
            )
            for row in await self._db.read(SQL["degraded_runs"])
        ]

    async def append_probes(self, probes: Sequence[BenchmarkResult], purpose: str) -> None:
        names = ("order_id", "node", "benchmark", "beside_job", "started_at", "ended_at", "error")
        columns: dict[str, Sequence[Any]] = {name: [getattr(probe, name) for probe in probes] for name in names}
        seconds = [list(probe.seconds) for probe in probes]
        await self._db.append("probes", {**columns, "seconds": seconds, "purpose": [purpose] * len(probes)})

    async def baseline_probes(self) -> list[BenchmarkResult]:
        rows = await self._db.read(SQL["baseline_probes"], [Purpose.BASELINE])
        names = ("order_id", "node", "benchmark", "beside_job", "started_at", "ended_at")
        return [BenchmarkResult(**{name: row[name] for name in names}, seconds=tuple(row["seconds"])) for row in rows]

    async def put_outcome_report(self, report: OutcomeReport) -> None:
        names = ("run_id", "period", "name", "organisation", "context_id", "failed")
        values = [getattr(report, name) for name in names]
        await self._db.execute(SQL["put_outcome_report"], [*values, time.time()])

    async def outcome_reports(self, period: int) -> list[OutcomeReport]:
        names = ("period", "name", "organisation", "context_id", "failed")
        return [
            OutcomeReport(bytes(row["run_id"]), **{name: row[name] for name in names})
            for row in await self._db.read(SQL["outcome_reports"], [period])
        ]

    async def put_revealed(self, run: Run, context_id: str, fingerprint: str) -> None:
        await self._db.execute(SQL["put_revealed"], [run.run_id, run.tenant, context_id, fingerprint, time.time()])
