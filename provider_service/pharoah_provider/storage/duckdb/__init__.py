"""The storage of one machine: one DuckDB file, one process, one writer thread. Its SQL lies in `sql/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.evidence import DuckEvidenceStore
from pharoah_provider.storage.duckdb.incidents import DuckIncidentStore
from pharoah_provider.storage.duckdb.listings import LISTINGS
from pharoah_provider.storage.duckdb.log import DuckLogStore
from pharoah_provider.storage.duckdb.nodes import DuckNodeStore
from pharoah_provider.storage.duckdb.published import DuckPublishedStore
from pharoah_provider.storage.duckdb.runs import DuckRunStore


class DuckStorage:
    """All stores on one database file."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises StoreError that names the file."""
        self._database = database = Database(path)
        self.nodes = DuckNodeStore(database)
        self.runs = DuckRunStore(database)
        self.incidents = DuckIncidentStore(database)
        self.evidence = DuckEvidenceStore(database)
        self.published = DuckPublishedStore(database)
        self.log = DuckLogStore(database)

    async def listing(self, name: str) -> list[dict[str, Any]]:
        """Rows of one of LISTINGS, ready for JSON."""
        return await self._database.read(LISTINGS[name])

    def close(self) -> None:
        """Commit what is queued and release the file."""
        self._database.close()
