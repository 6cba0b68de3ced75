"""Checks of idle nodes, and the results that they are judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pharoah_learning.check_history import PastChecks
from pharoah_learning.evidence import BenchmarkResult
from pharoah_provider.domain import IdleCheck
from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.evidence import benchmark_result
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_serving.costs import in_thread

SQL = statements("idle_checks")


class DuckIdleCheckStore:
    """See `storage.base.IdleCheckStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put(self, check: IdleCheck) -> None:
        names = ("node", "benchmark", "result", "propensity", "checked_at", "slowdown_ratio", "reason")
        await self._db.execute(SQL["put"], [getattr(check, name) for name in names])

    async def past(self) -> list[PastChecks]:
        return [PastChecks(**row) for row in await self._db.read(SQL["past"])]

    async def results(self, benchmark: str, nodes: Sequence[str], of_each: int) -> list[BenchmarkResult]:
        rows = await self._db.read(SQL["results"], [benchmark, list(nodes), of_each])
        return await in_thread(_results, rows)


def _results(rows: Sequence[Mapping[str, Any]]) -> list[BenchmarkResult]:
    return [benchmark_result(row) for row in rows]
