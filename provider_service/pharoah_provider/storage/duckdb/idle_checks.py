"""Checks of idle nodes, and the results that they are judged by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pharoah_learning.evidence import BenchmarkResult
from pharoah_provider.domain import CheckResult, IdleCheck
from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.evidence import benchmark_result
from pharoah_provider.storage.duckdb.statements import statements

SQL = statements("idle_checks")


class DuckIdleCheckStore:
    """See `storage.base.IdleCheckStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put(self, check: IdleCheck) -> None:
        names = ("node", "benchmark", "result", "propensity", "checked_at", "slowdown_ratio", "reason")
        await self._db.execute(SQL["put"], [getattr(check, name) for name in names])

    async def of_nodes(self, nodes: Sequence[str]) -> list[IdleCheck]:
        return [_check(row) for row in await self._db.read(SQL["of_nodes"], [list(nodes)])]

    async def newest(self) -> dict[str, float]:
        return {row["node"]: row["checked_at"] for row in await self._db.read(SQL["newest"])}

    async def results(self, benchmark: str, nodes: Sequence[str], of_each: int) -> list[BenchmarkResult]:
        rows = await self._db.read(SQL["results"], [benchmark, list(nodes), of_each])
        return [benchmark_result(row) for row in rows]


def _check(row: dict[str, Any]) -> IdleCheck:
    return IdleCheck(**{**row, "result": CheckResult(row["result"])})
