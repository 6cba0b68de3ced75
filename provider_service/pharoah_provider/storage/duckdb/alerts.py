"""Alerts about nodes."""

from __future__ import annotations

from typing import Any

from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.statements import statements

SQL = statements("alerts")
COLUMNS = (
    "alert_id",
    "run_id",
    "node",
    "state",
    "fault_domain",
    "what",
    "evidence",
    "since",
    "changed_at",
    "step_ratio",
)


class DuckAlertStore:
    """See `storage.base.AlertStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put_alert(self, alert: dict[str, Any]) -> None:
        await self._db.execute(SQL["put_alert"], [alert[name] for name in COLUMNS])

    async def open_alerts(self) -> list[dict[str, Any]]:
        return await self._db.read(SQL["open_alerts"])
