"""What tenants share: runs that they revealed, and what stands behind a shared outcome."""

from __future__ import annotations

import time
from typing import Any

from pharoah_learning.evidence import EvidenceKind, LeftOut, RevealedRun
from pharoah_protocol.log.forgotten import ForgottenEvidence
from pharoah_protocol.vocabulary import Attribution, EndState
from pharoah_provider.domain import Run, organisation_of
from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.evidence import read_evidence
from pharoah_provider.storage.duckdb.log import DuckLogStore
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_serving.costs import in_thread

SQL = statements("sharing")
MAX_BEFORE_SECONDS = 86_400.0
"""A day: reports with other times are not taken (`services.runs`). Without a bound, the reports of all runs of a month
would be looked through."""


class DuckSharingStore:
    """See `storage.base.SharingStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._log = DuckLogStore(database)

    async def count_evaluation(self, organisation: str, period: int) -> None:
        await self._db.execute(SQL["count_evaluation"], [organisation, period])

    async def evaluations(self, organisation: str, period: int) -> int:
        rows = await self._db.read(SQL["evaluations"], [organisation, period])
        return int(rows[0]["evaluated"]) if rows else 0

    async def names(self, organisation: str, period: int) -> set[str]:
        return {str(row["name"]) for row in await self._db.read(SQL["names"], [organisation, period])}

    async def sum_reported_seconds(self, run: Run) -> int:
        values = {"run_id": run.run_id, "since": run.joined_at - MAX_BEFORE_SECONDS}
        return int((await self._db.read(SQL["reported_seconds"], values))[0]["seconds"])

    async def put_revealed(self, run: Run, context_id: str, fingerprint: str) -> None:
        await self._db.execute(SQL["put_revealed"], [run.run_id, run.tenant, context_id, fingerprint, time.time()])

    async def list_revealed_runs(self, before: float, left_out: LeftOut | None = None) -> list[RevealedRun]:
        forgotten = ForgottenEvidence.after(await self._log.list_forgotten(before))
        rows = await self._db.read(SQL["revealed_runs"], [before])
        return await in_thread(read_evidence, EvidenceKind.REVEALED_RUN, rows, forgotten, left_out, _read_revealed_run)


def _read_revealed_run(row: dict[str, Any]) -> RevealedRun:
    return RevealedRun(
        organisation=organisation_of(row["tenant"]),
        fingerprint=row["fingerprint"],
        facts=tuple(row["server_facts"] or ()),
        ranks=row["ranks"],
        state=EndState(row["end_state"]),
        attribution=Attribution(row["attribution"]),
        ended_at=row["ran_at"],
    )
