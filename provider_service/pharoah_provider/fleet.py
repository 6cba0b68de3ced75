"""The nodes that are connected now, and orders to them. In memory: a node that reconnects is simply here again."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from math import inf
from typing import Any, TypeVar

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_learning.evidence import BenchmarkResult
from pharoah_provider.domain import Node
from pharoah_serving.errors import NotReady

T = TypeVar("T")

Order = tuple[str, str, dict[str, Any]]
"""Kind (probe, cell), order id, content; the servicer makes a message of it."""


class Connection:
    """One connected agent: orders out, results in."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.orders: asyncio.Queue[Order] = asyncio.Queue()
        self.last_seen = time.time()
        self._waiting: dict[str, asyncio.Queue[Any]] = {}

    @contextlib.asynccontextmanager
    async def order(self, kind: str, content: dict[str, Any]) -> AsyncIterator[asyncio.Queue[Any]]:
        """Send an order; its results arrive on the queue."""
        order_id = secrets.token_hex(8)
        results: asyncio.Queue[Any] = asyncio.Queue()
        self._waiting[order_id] = results
        try:
            await self.orders.put((kind, order_id, content))
            yield results
        finally:
            del self._waiting[order_id]

    def result(self, order_id: str, result: Any) -> bool:
        """False when nobody waits for it any more."""
        if order_id not in self._waiting:
            return False
        self._waiting[order_id].put_nowait(result)
        return True

    def fail(self) -> None:
        """The agent is gone: whoever waits is told."""
        for results in self._waiting.values():
            results.put_nowait(None)


class Fleet:
    """All connected nodes."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}
        self.probing: dict[str, list[tuple[float, float]]] = {}
        """Node to (start, end) of its recent probes: what a job does meanwhile says nothing about the node."""

    def connect(self, node: Node) -> Connection:
        """A node that connects again replaces its old connection."""
        if old := self._connections.get(node.node):
            old.fail()
        self._connections[node.node] = connection = Connection(node)
        return connection

    def disconnect(self, connection: Connection) -> None:
        connection.fail()
        if self._connections.get(connection.node.node) is connection:
            del self._connections[connection.node.node]

    def connected(self) -> list[Node]:
        return [connection.node for _, connection in sorted(self._connections.items())]

    def last_seen(self) -> dict[str, float]:
        return {name: connection.last_seen for name, connection in self._connections.items()}

    def peers(self, node: Node) -> list[Node]:
        """Connected nodes of the same context that do not share its cores."""
        return [
            peer
            for peer in self.connected()
            if peer.node != node.node and peer.context_id == node.context_id and not shares_cores(peer, node)
        ]

    async def probe(
        self, node: str, benchmarks: list[str], repeats: int, beside_job: bool, limit_seconds: float
    ) -> list[BenchmarkResult]:
        """Run micro-benchmarks on a node. Raises NotReady when it is not connected or does not answer, ValueError for a
        limit that is no time."""
        if not 0 < limit_seconds < inf:
            raise ValueError(f"limit_seconds: {limit_seconds} is not a time")
        content = {
            "benchmarks": benchmarks,
            "repeats": repeats,
            "beside_job": beside_job,
            "limit_seconds": limit_seconds,
        }
        connection, probes = self._connection(node), list[BenchmarkResult]()
        window = [time.time(), float("inf")]
        intervals = self.probing.setdefault(node, [])
        intervals.append((window[0], window[1]))
        try:
            async with connection.order("probe", content) as results:
                async with asyncio.timeout(limit_seconds * len(benchmarks) + 20):
                    for _ in benchmarks:
                        probes.append(_expected(await results.get(), BenchmarkResult, node))
        except TimeoutError:
            raise NotReady(f"node {node}: the micro-benchmarks did not come back in time") from None
        finally:
            intervals.remove((window[0], float("inf")))
            intervals.append((window[0], time.time()))
            del intervals[:-20]
        return probes

    async def run_cell(self, node: str, cell: Cell) -> CellResult:
        """Run one cell on a node. Raises NotReady when the node is not there or goes away."""
        content = {"cell": cell.to_json(), "limit_seconds": cell.limit_seconds}
        try:
            async with (
                asyncio.timeout(cell.limit_seconds + 90),
                self._connection(node).order("cell", content) as results,
            ):
                return _expected(await results.get(), CellResult, node)
        except TimeoutError:
            raise NotReady(f"node {node}: cell {cell.id} did not come back in time") from None

    def _connection(self, node: str) -> Connection:
        if node not in self._connections:
            raise NotReady(f"node {node} is not connected")
        return self._connections[node]


def _expected(result: Any, kind: type[T], node: str) -> T:
    """What an order is answered with. Raises NotReady for anything else, and for an agent that has gone."""
    if result is None:
        raise NotReady(f"node {node}: its agent went away")
    if not isinstance(result, kind):
        raise NotReady(f"node {node}: its agent answers another order than it was given")
    return result


def shares_cores(left: Node, right: Node) -> bool:
    """Whether two nodes are guests on the same cores of one host: never measured at the same time."""
    return left.boot_id == right.boot_id and bool(set(left.cpus) & set(right.cpus))
