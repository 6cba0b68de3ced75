"""The nodes that are connected now, and orders to them. In memory: a node that reconnects is simply here again."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any, TypeVar

from pharoah_benchmarks.campaign.cell import Cell, Outcome
from pharoah_learning.evidence import BenchmarkResult
from pharoah_provider.clock import Clock
from pharoah_provider.domain import Node, NodeState
from pharoah_serving.errors import NotReady

T = TypeVar("T")

KEPT_PROBES = 20
"""Intervals of micro-benchmarks that are kept per node: reports of a window come seconds after it, not minutes."""


class OrderKind(StrEnum):
    PROBE = "probe"
    CELL = "cell"
    NODE_STATE = "node_state"


@dataclass(frozen=True)
class Order:
    """What an agent is sent; the servicer makes a message of it."""

    kind: OrderKind
    content: dict[str, Any]
    order_id: str = ""
    """Empty where no result is expected."""


class Connection:
    """One connected agent: orders out, results in."""

    def __init__(self, node: Node, now: float) -> None:
        self.node = node
        self.orders: asyncio.Queue[Order] = asyncio.Queue()
        self.last_seen = now
        """Unix seconds."""
        self._waiting: dict[str, asyncio.Queue[Any]] = {}

    @contextlib.asynccontextmanager
    async def order(self, kind: OrderKind, content: dict[str, Any]) -> AsyncIterator[asyncio.Queue[Any]]:
        """Send an order; its results arrive on the queue."""
        order_id = secrets.token_hex(8)
        results: asyncio.Queue[Any] = asyncio.Queue()
        self._waiting[order_id] = results
        try:
            await self.orders.put(Order(kind, content, order_id))
            yield results
        finally:
            del self._waiting[order_id]

    def result(self, order_id: str, result: Any) -> bool:
        """False when nobody waits for it any more."""
        if order_id not in self._waiting:
            return False
        self._waiting[order_id].put_nowait(result)
        return True

    @property
    def busy(self) -> bool:
        """Whether results of an order are awaited."""
        return bool(self._waiting)

    def send_state(self, state: NodeState) -> None:
        """What is known of the node, for its agent."""
        self.orders.put_nowait(Order(OrderKind.NODE_STATE, dict(vars(state))))

    def fail(self) -> None:
        """The agent is gone: every order that waits for a result gets none."""
        for results in self._waiting.values():
            results.put_nowait(None)


class Fleet:
    """All connected nodes, and what is known of each."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._connections: dict[str, Connection] = {}
        self._states: dict[str, NodeState] = {}
        self._probed: dict[str, list[list[float]]] = {}
        """Node to [start, end] of its newest micro-benchmarks, in unix seconds."""

    def connect(self, node: Node) -> Connection:
        """A node that connects again replaces its old connection. Its agent is sent what is known of the node."""
        if old := self._connections.get(node.node):
            old.fail()
        self._connections[node.node] = connection = Connection(node, self._clock.wall())
        connection.send_state(self.state(node.node))
        return connection

    def disconnect(self, connection: Connection) -> None:
        connection.fail()
        if self._connections.get(connection.node.node) is connection:
            del self._connections[connection.node.node]

    def connected(self) -> list[Node]:
        return [connection.node for _, connection in sorted(self._connections.items())]

    def is_connected(self, node: str) -> bool:
        return node in self._connections

    def busy(self, node: str) -> bool:
        """Whether the node works on an order: a cell of a campaign, or micro-benchmarks."""
        return node in self._connections and self._connections[node].busy

    def state(self, node: str) -> NodeState:
        """What is validated of a node."""
        return self._states.get(node, NodeState())

    def set_state(self, node: str, state: NodeState) -> None:
        """What is validated of a node has changed: its agent hears of it, now or when it connects."""
        self._states[node] = state
        if node in self._connections:
            self._connections[node].send_state(state)

    def probed(self, node: str, began: float, ended: float) -> bool:
        """Whether micro-benchmarks ran on a node between these unix seconds: what a job did then says nothing about the
        node."""
        return any(start < ended and began < end for start, end in self._probed.get(node, ()))

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
        interval = [self._clock.wall(), inf]
        intervals = self._probed.setdefault(node, [])
        intervals.append(interval)
        try:
            async with connection.order(OrderKind.PROBE, content) as results:
                async with asyncio.timeout(limit_seconds * len(benchmarks) + 20):
                    for _ in benchmarks:
                        probes.append(_expected(await results.get(), BenchmarkResult, node))
        except TimeoutError:
            raise NotReady(f"node {node}: the micro-benchmarks did not come back in time") from None
        finally:
            interval[1] = self._clock.wall()
            del intervals[:-KEPT_PROBES]
        return probes

    async def run_cell(self, node: str, cell: Cell) -> Outcome:
        """Run one cell on a node. Raises NotReady when the node is not there or goes away."""
        content = {"cell": cell.to_json(), "limit_seconds": cell.limit_seconds}
        try:
            async with (
                asyncio.timeout(cell.limit_seconds + 90),
                self._connection(node).order(OrderKind.CELL, content) as results,
            ):
                return _expected(await results.get(), Outcome, node)
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
        raise NotReady(f"node {node}: its agent answers another order than it was sent")
    return result


def shares_cores(left: Node, right: Node) -> bool:
    """Whether two nodes are guests on the same cores of one host: never measured at the same time."""
    return left.boot_id == right.boot_id and bool(set(left.cpus) & set(right.cpus))
