"""Runs and their attempts. An attempt is never overwritten; its first end state stands."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Attribution, EndState
from pharoah_provider.domain import Run
from pharoah_provider.store.database import Database


class RunStore:
    """Writes return once committed; everything raises StoreError."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put(self, run: Run) -> None:
        """A new attempt. An attempt of the same run that had not ended by then was lost."""
        await self._db.execute_all(
            (
                "UPDATE runs SET ended_at = ?, end_state = ? WHERE run_id = ? AND ended_at IS NULL",
                [run.joined_at, EndState.LOST, run.run_id],
            ),
            (
                "INSERT INTO runs VALUES (?,?,?,?,?,?,?,?,?,NULL,NULL,NULL)",
                [
                    run.run_id,
                    run.attempt,
                    run.job_id,
                    run.tenant,
                    run.node,
                    run.ranks,
                    run.beside_job,
                    run.limit_seconds,
                    run.joined_at,
                ],
            ),
        )

    async def newest(self, run_id: bytes) -> Run | None:
        """The newest attempt of a run."""
        rows = await self._db.read("SELECT * FROM runs WHERE run_id = ? ORDER BY attempt DESC LIMIT 1", [run_id])
        return _run(rows[0]) if rows else None

    async def active(self) -> list[Run]:
        """Attempts that have not ended."""
        rows = await self._db.read("SELECT * FROM runs WHERE ended_at IS NULL ORDER BY joined_at")
        return [_run(row) for row in rows]

    async def end_state(self, run: Run) -> EndState | None:
        """None while the attempt goes on."""
        rows = await self._db.read(
            "SELECT end_state FROM runs WHERE run_id = ? AND attempt = ?", [run.run_id, run.attempt]
        )
        return EndState(rows[0]["end_state"]) if rows and rows[0]["end_state"] else None

    async def end(
        self, run: Run, state: EndState, ended_at: float, attribution: Attribution = Attribution.UNKNOWN
    ) -> None:
        """How an attempt ended, at a unix time. The first end state stands."""
        await self._db.execute(
            "UPDATE runs SET ended_at = ?, end_state = ?, attribution = ? "
            "WHERE run_id = ? AND attempt = ? AND ended_at IS NULL",
            [ended_at, state, attribution, run.run_id, run.attempt],
        )

    async def last_row_number(self, run: Run) -> int:
        """The number of the newest second that is stored of an attempt; -1 before the first."""
        rows = await self._db.read(
            "SELECT max(row_number) AS last FROM reports WHERE run_id = ? AND attempt = ?", [run.run_id, run.attempt]
        )
        return -1 if rows[0]["last"] is None else int(rows[0]["last"])


def _run(row: dict[str, Any]) -> Run:
    names = ("tenant", "node", "attempt", "ranks", "beside_job", "limit_seconds", "joined_at")
    return Run(bytes(row["run_id"]), **{name: row[name] for name in names}, job_id=bytes(row["job_id"]))
