"""Portable tables of other providers, and since when each is used."""

from __future__ import annotations

from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_provider.storage.records import ImportedTable

SQL = statements("imports")


class DuckImportStore:
    """See `storage.base.ImportStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put_import(self, imported: ImportedTable, at: float) -> None:
        await self._db.execute(SQL["put_import"], [*imported, at])

    async def remove_import(self, provider: str, at: float) -> None:
        await self._db.execute(SQL["put_import"], [provider, b"", "", at])

    async def imports(self, before: float = float("inf")) -> list[ImportedTable]:
        rows = await self._db.read(SQL["imports"], [before])
        return [
            ImportedTable(row["provider"], bytes(row["public_key"]), row["content"]) for row in rows if row["content"]
        ]
