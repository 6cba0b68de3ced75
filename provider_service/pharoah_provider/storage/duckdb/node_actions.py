"""What is to be done with nodes because of their class, and its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pharoah_learning.node_actions import NodeDecision
from pharoah_protocol.vocabulary import NodeAction, NodeClass
from pharoah_provider.storage.duckdb.database import Database, executing
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_provider.storage.records import StoredDecision

SQL = statements("node_actions")


class DuckNodeActionStore:
    """See `storage.base.NodeActionStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put(self, decisions: Sequence[NodeDecision], at: float, *, by_operator: bool = False) -> None:
        if decisions:
            await self._db.apply(*(executing(SQL["put_decision"], _values(one, at, by_operator)) for one in decisions))

    async def newest(self) -> list[StoredDecision]:
        return [_read_decision(row) for row in await self._db.read(SQL["newest"])]

    async def list_returned(self) -> dict[str, float]:
        return {row["node"]: row["returned_at"] for row in await self._db.read(SQL["returned"])}


def _values(one: NodeDecision, at: float, by_operator: bool) -> list[Any]:
    return [
        one.node,
        one.action,
        one.node_class,
        one.probability,
        one.sick_probability,
        one.failures,
        one.reruns,
        list(one.wrong_for),
        one.held_back,
        by_operator,
        at,
    ]


def _read_decision(row: dict[str, Any]) -> StoredDecision:
    decision = NodeDecision(
        node=row["node"],
        action=NodeAction(row["action"]),
        node_class=NodeClass(row["node_class"]),
        probability=row["probability"],
        sick_probability=row["sick_probability"],
        failures=row["failures"],
        reruns=row["reruns"],
        wrong_for=tuple(row["wrong_for"]),
        held_back=row["held_back"],
    )
    return StoredDecision(decision, row["decided_at"], row["by_operator"])
