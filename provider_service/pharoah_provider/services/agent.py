"""`pharoah.v1.Agent`: one stream per node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from itertools import compress
from typing import Any

from pharoah_protocol.v1 import (
    Ack,
    AgentMessage,
    AgentOrder,
    CellOrder,
    HazardModel,
    Hello,
    LookOrder,
    NodeState,
    ProbeOrder,
    ProbePeer,
    StopOrder,
    Telemetry,
    Welcome,
)
from pharoah_provider.agent_budgets import CHANGES_A_DAY, MAX_SIGNALS, AgentBudgets, check_telemetry, is_of_today
from pharoah_provider.agent_connection import Connection, Order, OrderKind
from pharoah_provider.domain import PLACES, Node
from pharoah_provider.fleet import Fleet
from pharoah_provider.peer_hosts import PeerHosts
from pharoah_provider.services.agent_answers import AgentAnswers
from pharoah_provider.storage.node_store import NodeStore
from pharoah_serving.call_guard import caller
from pharoah_serving.clock import Clock
from pharoah_serving.context import Context
from pharoah_serving.costs import meter
from pharoah_serving.errors import Invalid, Refused
from pharoah_serving.long_steps import watch_work
from pharoah_serving.metrics import Metrics
from pharoah_serving.reading_processes import ReadingProcesses

TELEMETRY_PERIOD_SECONDS = 2.0
WAITING_ANSWERS = 64
"""Messages to an agent that does not read them; then nothing more of it is read either."""
MAX_CPUS, MAX_FACTS, MAX_FACT_LENGTH = 1 << 16, 64, 256
HELD = (
    f"this node has changed its facts more than {CHANGES_A_DAY} times in a day. It stays in the context that was "
    "admitted last, and nothing is measured on it, until tomorrow or until `pharoah-provider admit NODE`"
)
"""The notice for the people of a node that is held."""
OF_ANOTHER_DAY = (
    "telemetry.sampled_at: not a time of the last or the next day, so this telemetry was dropped; is the clock of the "
    "node right?"
)
"""The notice for the people of a node whose telemetry was dropped."""
TOO_MANY_SIGNALS = (
    f"telemetry: more than {MAX_SIGNALS} signals of devices of this node, so the others were dropped; do names of "
    "devices change all the time?"
)
"""The notice for the people of a node of which a part of the telemetry was dropped."""


@dataclass
class _Stream:
    """One stream of an agent."""

    connection: Connection
    out: asyncio.Queue[AgentOrder | None]
    """What goes to the agent; None ends the stream."""
    complete: bool = True
    """Whether every batch of telemetry was kept: acknowledging a later one would acknowledge a dropped one, too."""


class AgentServicer:
    """Streams of the agents: facts, telemetry and results in, orders out."""

    def __init__(
        self,
        nodes: NodeStore,
        fleet: Fleet,
        metrics: Metrics,
        clock: Clock,
        reading: ReadingProcesses,
        peer_hosts: PeerHosts | None = None,
    ) -> None:
        """`peer_hosts`: by default a node is met at the host of its agent's connection."""
        self._nodes, self._fleet, self._metrics, self._clock = nodes, fleet, metrics, clock
        self._answers = AgentAnswers(reading, metrics)
        self._peer_hosts = peer_hosts or PeerHosts()
        self._budgets = AgentBudgets(nodes, clock, fleet.contexts)

    async def Connect(
        self, messages: AsyncIterator[AgentMessage | bytes], context: Context
    ) -> AsyncIterator[AgentOrder]:
        first = await anext(aiter(messages), None)
        if first is None or isinstance(first, bytes) or first.WhichOneof("content") != "hello":
            raise Invalid("content: the first message must be hello")
        if first.hello.node != caller().name:
            raise Refused("this caller stands on another node")
        node, held = await self._budgets.admit(self._node(first.hello, context.peer()))
        await self._nodes.put_node(node, self._clock.wall())
        stream = _Stream(self._fleet.connect(node, held), asyncio.Queue(WAITING_ANSWERS))
        reading = asyncio.create_task(_charge(self._read(messages, stream)))
        sending = asyncio.create_task(_orders(stream.connection, stream.out))
        try:  # an agent may go away while it is welcomed
            yield AgentOrder(
                welcome=Welcome(telemetry_period_seconds=TELEMETRY_PERIOD_SECONDS, notice=HELD if held else "")
            )
            while (order := await stream.out.get()) is not None:
                yield order
            if reading.done() and not reading.cancelled():  # it is cancelled when the provider ends
                reading.result()  # raises what ended it
        finally:
            self._fleet.disconnect(stream.connection)
            sending.cancel()
            reading.cancel()
            await asyncio.wait({sending, reading})

    def _node(self, hello: Hello, connection: str) -> Node:
        return _node(hello, self._peer_hosts.address(hello.node, hello.peer_address, connection))

    async def _read(self, messages: AsyncIterator[AgentMessage | bytes], stream: _Stream) -> None:
        connection = stream.connection
        try:
            async for message in messages:
                now = connection.heard(self._clock)
                if isinstance(message, bytes):
                    await self._answers.take_long(connection, message)
                    continue
                match message.WhichOneof("content"):
                    case "telemetry":
                        await self._store_telemetry(stream, message.telemetry, now)
                    case "probe":
                        self._answers.take_probe(connection, message.probe, now)
                    case "cell":
                        await self._answers.take_cell(connection, message.cell)
                    case "look":
                        self._answers.take_look(connection, message.look)
        finally:
            if stream.out.full():  # the agent does not read: one answer less does not matter to it
                stream.out.get_nowait()
            stream.out.put_nowait(None)

    async def _store_telemetry(self, stream: _Stream, rows: Telemetry, now: float) -> None:
        """Keep and acknowledge a batch. One beyond the budget of the node is dropped and counted, and not looked at:
        reading ten thousand rows takes 2 ms of the event loop, and a flood consists of such batches."""
        node, size = stream.connection.node.node, len(rows.sampled_at)
        if not self._budgets.takes_rows(node, size):
            self._metrics.rejected.labels("telemetry_too_fast").inc(size)
            stream.complete = False
            return
        try:
            check_telemetry(rows.sampled_at, rows.metric, rows.device, rows.value)
        except Invalid as error:  # an agent would connect again and send it again if its stream ended
            notice = f"dropped a batch: {error}"
            self._metrics.rejected.labels("telemetry_invalid").inc(size)
        else:
            notice = await self._keep_telemetry(node, rows, now)
        if stream.complete:
            await stream.out.put(AgentOrder(ack=Ack(batch=rows.batch, notice=notice)))

    async def _keep_telemetry(self, node: str, rows: Telemetry, now: float) -> str:
        """Keep a batch of the last day; a notice about what is not kept."""
        if not rows.sampled_at:
            return ""
        if not is_of_today(rows.sampled_at, now):
            self._metrics.rejected.labels("telemetry_of_another_day").inc(len(rows.sampled_at))
            return OF_ANOTHER_DAY
        return await self._append_telemetry(node, rows)

    async def _append_telemetry(self, node: str, rows: Telemetry) -> str:
        """Keep a batch, but for what is too much; a notice about that."""
        at, metric, device, value = rows.sampled_at, rows.metric, rows.device, rows.value
        refused = self._budgets.refuse_signals(node, metric, device)
        if not refused:
            await self._nodes.append_telemetry(node, at, metric, device, value)
            return ""
        kept = [names not in refused for names in zip(metric, device, strict=True)]
        self._metrics.rejected.labels("telemetry_of_too_many_signals").inc(kept.count(False))
        if any(kept):
            names = list(compress(metric, kept)), list(compress(device, kept))
            await self._nodes.append_telemetry(node, list(compress(at, kept)), *names, list(compress(value, kept)))
        return TOO_MANY_SIGNALS


async def _charge(work: Coroutine[Any, Any, None]) -> None:
    """The work, whose CPU seconds are charged to the agent, and whose steps are watched."""
    await meter(watch_work(work))


async def _orders(connection: Connection, out: asyncio.Queue[AgentOrder | None]) -> None:
    while (order := await connection.orders.get()) is not None:
        await out.put(_message(order))
    await out.put(None)


def _message(order: Order) -> AgentOrder:
    match order.kind:
        case OrderKind.PROBE:
            content = dict(order.content)
            if (peer := content.pop("peer", None)) is not None:
                content["peer"] = ProbePeer(**peer._asdict())
            return AgentOrder(probe=ProbeOrder(order_id=order.order_id, **content))
        case OrderKind.CELL:
            return AgentOrder(cell=CellOrder(order_id=order.order_id, **order.content))
        case OrderKind.LOOK:
            return AgentOrder(look=LookOrder(order_id=order.order_id))
        case OrderKind.STOP:
            return AgentOrder(stop=StopOrder(order_id=order.order_id))
        case OrderKind.NODE_STATE:
            content = {**order.content, "state": order.content["state"].code}
            advice = content.pop("advice")
            content |= {"action": advice.action.code, "advice": advice.advice, "enforced": advice.enforced}
            return AgentOrder(node_state=NodeState(**content))
        case OrderKind.HAZARD_MODEL:
            return AgentOrder(hazard_model=HazardModel(**order.content))


def _node(hello: Hello, peer_address: str) -> Node:
    """`peer_address`: where other nodes reach it, which is not what its agent states. Raises Invalid."""
    if len(hello.ticket_key) != 32:
        raise Invalid(f"hello.ticket_key: {len(hello.ticket_key)} bytes, expected 32")
    if not hello.server_facts or not hello.device_facts:
        raise Invalid("hello.server_facts, hello.device_facts: a node without facts has no context")
    if len(hello.cpus) > MAX_CPUS or any(cpu < 0 or cpu >= MAX_CPUS for cpu in hello.cpus):
        raise Invalid(f"hello.cpus: expected at most {MAX_CPUS} numbers below {MAX_CPUS}")
    texts = (hello.boot_id, hello.version, hello.host, *hello.server_facts, *hello.device_facts)
    if len(texts) > MAX_FACTS or any(len(text) > MAX_FACT_LENGTH or not text.isprintable() for text in texts):
        raise Invalid(f"hello: expected at most {MAX_FACTS} printable facts of at most {MAX_FACT_LENGTH} characters")
    places = tuple(sorted(fact for fact in hello.server_facts if fact.partition("=")[0] in PLACES))
    return Node(
        hello.node,
        hello.ticket_key,
        hello.boot_id,
        tuple(fact for fact in hello.server_facts if fact not in places),
        tuple(hello.device_facts),
        tuple(hello.cpus),
        hello.version,
        hello.host,
        places,
        peer_address,
    )
