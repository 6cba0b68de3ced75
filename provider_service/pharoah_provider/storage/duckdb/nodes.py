"""Nodes and their telemetry."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pharoah_provider.domain import Node
from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_provider.storage.duckdb.telemetry import TelemetryBatch, write_telemetry
from pharoah_provider.storage.records import DeviceSignal

SQL = statements("nodes")


class DuckNodeStore:
    """See `storage.node_store.NodeStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put_node(self, node: Node, now: float | None = None) -> None:
        at = time.time() if now is None else now
        await self._db.execute(
            SQL["put_node"],
            [node.node, node.ticket_key, node.boot_id, node.facts_id, node.device_id, list(node.server_facts),
             list(node.device_facts), list(node.cpus), node.version, at, node.host, list(node.places),
             node.peer_address, node.facts_id, node.device_id, at, node.node],
        )  # fmt: skip

    async def node(self, name: str) -> Node | None:
        rows = await self._db.read(SQL["node"], [name])
        return _node(rows[0]) if rows else None

    async def nodes(self) -> list[Node]:
        return [_node(row) for row in await self._db.read(SQL["nodes"])]

    async def facts_since(self) -> dict[str, float]:
        return {row["node"]: row["facts_since"] or 0.0 for row in await self._db.read(SQL["facts_since"])}

    async def append_telemetry(
        self, node: str, at: Sequence[float], metric: Sequence[str], device: Sequence[str], value: Sequence[float]
    ) -> None:
        await self._db.write(write_telemetry, TelemetryBatch(node, at, metric, device, value), len(at))

    async def device_signals(self, node: str) -> list[DeviceSignal]:
        return [DeviceSignal(**row) for row in await self._db.read(SQL["device_signals"], [node])]

    async def put_context_change(self, node: str, at: float) -> None:
        await self._db.execute(SQL["put_context_change"], [node, at])

    async def context_changes(self, node: str, since: float) -> int:
        return int((await self._db.read(SQL["context_changes"], [node, since]))[0]["changes"])

    async def forget_context_changes(self, node: str) -> None:
        await self._db.execute(SQL["forget_context_changes"], [node])


def _node(row: dict[str, Any]) -> Node:
    return Node(
        row["node"],
        bytes(row["ticket_key"]),
        row["boot_id"],
        tuple(row["server_facts"]),
        tuple(row["device_facts"]),
        tuple(row["cpus"]),
        row["version"],
        row["host"],
        tuple(row["places"] or ()),
        row["peer_address"] or "",
    )
