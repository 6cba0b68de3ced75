"""What the hazard model of nodes is learned from, and the newest model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pharoah_learning.node_failures import TroubleHour
from pharoah_provider.storage.duckdb.database import Database, executing
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_serving.costs import in_thread

SQL = statements("hazards")
READING_SECONDS = 2.0
"""What one reading stands for: an agent sends one every two seconds (`services.agent`)."""


class DuckHazardStore:
    """See `storage.base.HazardStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def list_observed_hours(self, since: float, now: float) -> dict[str, list[int]]:
        return {row["node"]: row["hours"] for row in await self._db.read(SQL["observed_hours"], [since, now])}

    async def trouble_hours(self, since: float, signals: Collection[str]) -> list[TroubleHour]:
        rows = await self._db.read(SQL["trouble_hours"], [since, READING_SECONDS, list(signals)])
        return await in_thread(_trouble_hours, rows)

    async def put_model(self, content: str, made_at: float, check: str = "") -> None:
        await self._db.apply(executing(SQL["remove_model"]), executing(SQL["put_model"], [made_at, content, check]))

    async def remove_model(self) -> None:
        await self._db.apply(executing(SQL["remove_model"]))

    async def newest_model(self) -> str | None:
        rows = await self._db.read(SQL["newest_model"])
        return rows[0]["content"] if rows else None

    async def newest_check(self) -> str:
        rows = await self._db.read(SQL["newest_check"])
        return str(rows[0]["checked"]) if rows else ""


def _trouble_hours(rows: Sequence[Mapping[str, Any]]) -> list[TroubleHour]:
    return [TroubleHour(**row) for row in rows]
