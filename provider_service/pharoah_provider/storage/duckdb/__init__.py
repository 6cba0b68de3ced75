"""The storage of one machine: one DuckDB file, one process, one writer thread. Its SQL lies in `sql/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pharoah_provider.storage.duckdb.campaigns import DuckCampaignStore
from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.dry_runs import DuckDryRunStore
from pharoah_provider.storage.duckdb.evidence import DuckEvidenceStore
from pharoah_provider.storage.duckdb.hazards import DuckHazardStore
from pharoah_provider.storage.duckdb.idle_checks import DuckIdleCheckStore
from pharoah_provider.storage.duckdb.imports import DuckImportStore
from pharoah_provider.storage.duckdb.incidents import DuckIncidentStore
from pharoah_provider.storage.duckdb.log import DuckLogStore
from pharoah_provider.storage.duckdb.node_actions import DuckNodeActionStore
from pharoah_provider.storage.duckdb.nodes import DuckNodeStore
from pharoah_provider.storage.duckdb.orders import DuckOrderStore
from pharoah_provider.storage.duckdb.published import DuckPublishedStore
from pharoah_provider.storage.duckdb.retention import delete_before
from pharoah_provider.storage.duckdb.runs import DuckRunStore
from pharoah_provider.storage.duckdb.sharing import DuckSharingStore


class DuckStorage:
    """All stores on one database file."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises StoreError that names the file."""
        self._database = database = Database(path)
        self.nodes = DuckNodeStore(database)
        self.runs = DuckRunStore(database)
        self.incidents = DuckIncidentStore(database)
        self.hazards = DuckHazardStore(database)
        self.idle_checks = DuckIdleCheckStore(database)
        self.node_actions = DuckNodeActionStore(database)
        self.orders = DuckOrderStore(database)
        self.evidence = DuckEvidenceStore(database)
        self.dry_runs = DuckDryRunStore(database)
        self.campaigns = DuckCampaignStore(database)
        self.sharing = DuckSharingStore(database)
        self.imports = DuckImportStore(database)
        self.published = DuckPublishedStore(database)
        self.log = DuckLogStore(database)

    @property
    def failed(self) -> bool:
        """Whether DuckDB has ended with a fatal error: nothing can be read or stored before the next start."""
        return self._database.failed

    async def select(self, query: str) -> list[dict[str, Any]]:
        """Rows of a query for a listing. Raises StoreError."""
        return await self._database.read(query)

    async def delete_before(self, table: str, before: float) -> int:
        """Delete rows of a table of `storage.retention` from before then (unix seconds); returns how many."""
        return await delete_before(self._database, table, before)

    def close(self) -> None:
        """Commit what is queued and release the file."""
        self._database.close()
