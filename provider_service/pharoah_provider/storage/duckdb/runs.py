"""Runs, tickets and reports."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pharoah_learning.evidence import OutcomeReport
from pharoah_protocol.vocabulary import Attribution, EndState
from pharoah_provider.domain import Report, Run
from pharoah_provider.storage.duckdb.database import Database, executing
from pharoah_provider.storage.duckdb.evidence import put_outcome_report
from pharoah_provider.storage.duckdb.reports import ReportSpans
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_provider.storage.records import ReportedAmount

SQL = statements("runs")


class DuckRunStore:
    """See `storage.base.RunStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._reports = ReportSpans(database)

    async def put_run(self, run: Run) -> None:
        values = [run.run_id, run.attempt, run.job_id, run.tenant, run.node, run.ranks, run.beside_job]
        lost = executing(SQL["end_earlier_attempts"], [run.joined_at, EndState.LOST, run.run_id])
        put = executing(SQL["put_run"], [*values, run.limit_seconds, run.joined_at, run.probe_key, run.node])
        await self._reports.begin(run, lost, put)

    async def take_ticket(self, nonce: str, run_id: bytes) -> bool:
        await self._db.execute(SQL["take_ticket"], [nonce, run_id, time.time()])
        rows = await self._db.read(SQL["ticket_holder"], [nonce])
        return bytes(rows[0]["run_id"]) == run_id

    async def run(self, run_id: bytes) -> Run | None:
        rows = await self._db.read(SQL["run"], [run_id])
        return _run(rows[0]) if rows else None

    async def active_runs(self) -> list[Run]:
        runs = [_run(row) for row in await self._db.read(SQL["active_runs"])]
        await self._reports.read_all(runs)
        return runs

    async def list_lost_runs(self) -> list[Run]:
        return [_run(row) for row in await self._db.read(SQL["lost_runs"])]

    async def put_seen_empty(self, node: str) -> None:
        await self._db.execute(SQL["put_seen_empty"], [node])

    async def end_state(self, run: Run) -> EndState | None:
        rows = await self._db.read(SQL["end_state"], [run.run_id, run.attempt])
        return EndState(rows[0]["end_state"]) if rows and rows[0]["end_state"] else None

    async def end_run(
        self,
        run: Run,
        state: EndState,
        ended_at: float,
        attribution: Attribution = Attribution.UNKNOWN,
        outcome: OutcomeReport | None = None,
    ) -> None:
        changes = [executing(SQL["end_run"], [ended_at, state, attribution, run.run_id, run.attempt])]
        if outcome is not None:
            changes.append(put_outcome_report(outcome))
        await self._reports.close(run.run_id, *changes)

    async def append_reports(
        self, run: Run, reports: Sequence[Report], masked: Sequence[bool], risk: Sequence[float]
    ) -> int:
        return await self._reports.append(run, reports, masked, risk)

    async def list_reported_since(self, since: float) -> list[ReportedAmount]:
        rows = await self._db.read(SQL["reported_since"], {"since": since})
        return [ReportedAmount(row["tenant"], int(row["rank_seconds"]), int(row["row_count"])) for row in rows]

    async def last_row_number(self, run_id: bytes, attempt: int) -> int:
        return await self._reports.last_second(run_id, attempt)


def _run(row: dict[str, Any]) -> Run:
    names = ("tenant", "node", "attempt", "ranks", "beside_job", "limit_seconds", "joined_at")
    return Run(
        bytes(row["run_id"]),
        **{name: row[name] for name in names},
        job_id=bytes(row["job_id"]),
        probe_key=bytes(row["probe_key"]),
    )
