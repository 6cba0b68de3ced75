"""What stands behind a shared outcome: pseudonyms that were evaluated, and seconds that a run has reported."""

from __future__ import annotations

from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.statements import statements

SQL = statements("sharing")


class DuckSharingStore:
    """See `storage.base.SharingStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def count_evaluation(self, organisation: str, period: int) -> None:
        await self._db.execute(SQL["count_evaluation"], [organisation, period])

    async def evaluations(self, organisation: str, period: int) -> int:
        rows = await self._db.read(SQL["evaluations"], [organisation, period])
        return int(rows[0]["evaluated"]) if rows else 0

    async def names(self, organisation: str, period: int) -> set[str]:
        return {str(row["name"]) for row in await self._db.read(SQL["names"], [organisation, period])}

    async def reported_seconds(self, run_id: bytes) -> int:
        return int((await self._db.read(SQL["reported_seconds"], {"run_id": run_id}))[0]["seconds"])
