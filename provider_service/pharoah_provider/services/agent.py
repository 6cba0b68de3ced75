"""`pharoah.v1.Agent`: one stream per node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from math import isfinite
from typing import Any

from pharoah_benchmarks.campaign.cell import Outcome
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.v1 import (
    Ack,
    AgentMessage,
    AgentOrder,
    CellOrder,
    Hello,
    NodeState,
    ProbeOrder,
    Telemetry,
    Welcome,
)
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Connection, Fleet, Order, OrderKind
from pharoah_provider.storage.base import NodeStore
from pharoah_serving import Context
from pharoah_serving.call_guard import caller
from pharoah_serving.errors import Invalid, Refused

TELEMETRY_PERIOD_SECONDS = 2.0
LARGEST_BATCH = 10_000
MOST_CPUS, MOST_FACTS, LONGEST_FACT = 1 << 16, 64, 256


class AgentServicer:
    def __init__(self, nodes: NodeStore, fleet: Fleet) -> None:
        self._nodes, self._fleet = nodes, fleet

    async def Connect(self, messages: AsyncIterator[AgentMessage], _: Context) -> AsyncIterator[AgentOrder]:
        first = await anext(aiter(messages), None)
        if first is None or first.WhichOneof("content") != "hello":
            raise Invalid("content: the first message must be hello")
        if first.hello.node != caller().name:
            raise Refused("this caller stands on another node")
        node = _node(first.hello)
        await self._nodes.put_node(node)
        connection = self._fleet.connect(node)
        yield AgentOrder(welcome=Welcome(telemetry_period_seconds=TELEMETRY_PERIOD_SECONDS))
        acks: asyncio.Queue[AgentOrder | None] = asyncio.Queue()
        reading = asyncio.create_task(self._read(messages, connection, acks))
        sending = asyncio.create_task(_orders(connection, acks))
        try:
            while (order := await acks.get()) is not None:
                yield order
            await asyncio.wait({reading})
            if not reading.cancelled():  # as it is when the provider ends
                reading.result()  # raises what ended it
        finally:
            self._fleet.disconnect(connection)
            sending.cancel()
            reading.cancel()
            await asyncio.wait({sending, reading})

    async def _read(
        self,
        messages: AsyncIterator[AgentMessage],
        connection: Connection,
        acks: asyncio.Queue[AgentOrder | None],
    ) -> None:
        try:
            async for message in messages:
                connection.last_seen = time.time()
                match message.WhichOneof("content"):
                    case "telemetry":
                        await self._store_telemetry(connection.node.node, message.telemetry)
                        await acks.put(AgentOrder(ack=Ack(batch=message.telemetry.batch)))
                    case "probe":
                        connection.result(message.probe.order_id, _probe(connection.node.node, message.probe))
                    case "cell":
                        connection.result(message.cell.order_id, _outcome(message.cell.outcome))
        finally:
            await acks.put(None)

    async def _store_telemetry(self, node: str, rows: Telemetry) -> None:
        size = len(rows.sampled_at)
        for name in ("metric", "device", "value"):
            if len(getattr(rows, name)) != size:
                raise Invalid(f"telemetry.{name}: {len(getattr(rows, name))} values, sampled_at has {size}")
        if size > LARGEST_BATCH:
            raise Invalid(f"telemetry.sampled_at: {size} rows, at most {LARGEST_BATCH} in one batch")
        if size:
            await self._nodes.append_telemetry(node, rows.sampled_at, rows.metric, rows.device, rows.value)


async def _orders(connection: Connection, out: asyncio.Queue[AgentOrder | None]) -> None:
    while True:
        await out.put(_message(await connection.orders.get()))


def _message(order: Order) -> AgentOrder:
    match order.kind:
        case OrderKind.PROBE:
            return AgentOrder(probe=ProbeOrder(order_id=order.order_id, **order.content))
        case OrderKind.CELL:
            return AgentOrder(cell=CellOrder(order_id=order.order_id, **order.content))
        case OrderKind.NODE_STATE:
            content = {**order.content, "state": order.content["state"].code}
            return AgentOrder(node_state=NodeState(**content))


def _node(hello: Hello) -> Node:
    if len(hello.ticket_key) != 32:
        raise Invalid(f"hello.ticket_key: {len(hello.ticket_key)} bytes, expected 32")
    if not hello.server_facts or not hello.device_facts:
        raise Invalid("hello.server_facts, hello.device_facts: a node without facts has no context")
    if any(cpu < 0 or cpu >= MOST_CPUS for cpu in hello.cpus):
        raise Invalid(f"hello.cpus: not all of them are numbers below {MOST_CPUS}")
    texts = (hello.boot_id, hello.version, *hello.server_facts, *hello.device_facts)
    if any(len(text) > LONGEST_FACT or not text.isprintable() for text in texts) or len(texts) > MOST_FACTS:
        raise Invalid(f"hello: expected at most {MOST_FACTS} printable facts of at most {LONGEST_FACT} characters")
    return Node(
        hello.node,
        hello.ticket_key,
        hello.boot_id,
        tuple(hello.server_facts),
        tuple(hello.device_facts),
        tuple(hello.cpus),
        hello.version,
    )


def _outcome(text: str) -> Outcome:
    try:
        return Outcome.from_json(text)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise Invalid(f"cell.outcome: {error!a}"[:200]) from None


def _probe(node: str, result: Any) -> BenchmarkResult:
    """Raises Invalid for what no benchmark can have measured."""
    if not all(isfinite(seconds) and seconds > 0 for seconds in result.seconds):
        raise Invalid("probe.seconds: not all of them are times above 0")
    if not isfinite(result.started_at) or not isfinite(result.ended_at):
        raise Invalid("probe.started_at, probe.ended_at: not times")
    return BenchmarkResult(
        result.order_id,
        node,
        result.benchmark,
        result.beside_job,
        result.started_at,
        result.ended_at,
        tuple(result.seconds),
        result.error,
    )
