"""Orders for micro-benchmarks, so that budgets survive a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from pharoah_protocol.vocabulary import Purpose
from pharoah_provider.domain import Found, MeasuredOrder
from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.statements import statements

SQL = statements("orders")


class DuckOrderStore:
    """See `storage.base.OrderStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def append_orders(self, orders: Sequence[MeasuredOrder]) -> None:
        rows = [asdict(order) for order in orders]
        names = [column.name for column in fields(MeasuredOrder)]
        await self._db.append("benchmark_orders", {name: [row[name] for row in rows] for name in names})

    async def list_measured_orders(self, since: float) -> list[MeasuredOrder]:
        rows = await self._db.read(SQL["measured_orders"], [since])
        return [
            MeasuredOrder(**{**row, "purpose": Purpose(row["purpose"]), "found": Found(row["found"])}) for row in rows
        ]
