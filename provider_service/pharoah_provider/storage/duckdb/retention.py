"""Deleting old rows."""

from __future__ import annotations

import duckdb

from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.statements import statements

SQL = statements("retention")


async def delete_before(database: Database, table: str, before: float) -> int:
    """Delete rows of a table of `storage.retention` from before then (unix seconds); returns how many."""
    deleted: dict[str, int] = {}

    def delete(connection: duckdb.DuckDBPyConnection) -> None:
        for name in (name for name in SQL if name.partition(".")[0] == table):
            counted = connection.execute(SQL[name], [before]).fetchone()
            deleted[name] = counted[0] if counted else 0

    await database.apply(delete)
    return sum(deleted.values())
