"""The provider's own dry runs of cells."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pharoah_benchmarks.campaign.cell import Cell, DryCell
from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.evidence import settings_of
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_serving.costs import in_thread

SQL = statements("dry_runs")

MAX_ATTEMPTS = 3
"""How often a cell is dry-run that gives no fingerprint: a dry run may have been late on a busy machine, or killed when
memory was short, and its reason does not show whether another one would be as well."""


class DuckDryRunStore:
    """See `storage.base.DryRunStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put(self, cell: Cell, software: str, dry: DryCell) -> None:
        values = [cell.workload, settings_of(cell), software, dry.fingerprint, dry.reason, time.time()]
        await self._db.execute(SQL["put"], values)

    async def missing(self, cells: Sequence[Cell], software: str) -> list[Cell]:
        rows = await self._db.read(SQL["contents"], [software, MAX_ATTEMPTS])
        done = {(row["workload"], row["settings"]) for row in rows}

        def missing() -> list[Cell]:
            wanted = {(cell.workload, settings_of(cell)): cell for cell in cells}
            return [cell for content, cell in wanted.items() if content not in done]

        return await in_thread(missing)  # a campaign may have 20,000 cells in each context

    async def fingerprints(self, cells: Sequence[Cell], software: str) -> dict[str, str]:
        rows = await self._db.read(SQL["fingerprints"], [software])
        found = {(row["workload"], row["settings"]): row["fingerprint"] for row in rows}

        def list_known() -> dict[str, str]:
            wanted = {cell.content: (cell.workload, settings_of(cell)) for cell in cells}
            return {content: found[key] for content, key in wanted.items() if key in found}

        return await in_thread(list_known)
