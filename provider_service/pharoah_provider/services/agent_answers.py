"""Answers of an agent to its orders: looked at only while the order is open on its connection.

What an open order is not waiting for is counted and dropped unread; an agent that sends a few more of these than one
that works would has its stream ended. What a cell has given is read in another process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.answer_digests import DIGEST
from pharoah_protocol.bounds import check_durations, check_time
from pharoah_protocol.v1 import CellResult, LookResult, ProbeResult
from pharoah_provider.agent_connection import ANSWERS_WITHOUT_ORDER, Connection, Looked, Order, OrderKind
from pharoah_provider.cell_results import from_parts
from pharoah_serving.errors import Exhausted, Invalid
from pharoah_serving.metrics import Metrics
from pharoah_serving.reading_processes import ReadingProcesses, Unreadable
from pharoah_system.text import sanitize_text


@dataclass(frozen=True)
class AgentAnswers:
    """Takes the answers of all agents. Each method raises Invalid, which names the field, for what no node can have
    given, and Exhausted for one answer too many that nobody has asked for."""

    reading: ReadingProcesses
    metrics: Metrics

    async def take_cell(self, connection: Connection, answer: CellResult) -> None:
        """The result of a cell, in a message that is as short as any other."""
        order = self._open(connection, answer.order_id, OrderKind.CELL)
        if order is None:
            return
        try:
            parts = await self.reading.read("cell", order.content["cell"].encode(), answer.outcome.encode())
        except Unreadable as error:
            raise _refuse(connection, [answer.order_id], error) from None
        connection.result(answer.order_id, from_parts(parts))

    async def take_long(self, connection: Connection, message: bytes) -> None:
        """A message that is longer than others: only a result may be so long, and only of a cell that was ordered."""
        cells, longest = connection.open_cells(), connection.longest_answer_bytes
        if not cells:
            self._count_without_order(connection)
            return
        try:
            if len(message) > longest:
                raise Unreadable(f"{len(message)} bytes, at most {longest} for the cell that was ordered")
            order_id, *parts = await self.reading.read("long_answer", json.dumps(cells).encode(), message)
        except Unreadable as error:
            raise _refuse(connection, cells, error) from None  # whichever it was meant for
        if parts:
            connection.result(order_id.decode(), from_parts(parts))
        else:
            self._count_without_order(connection)

    def take_probe(self, connection: Connection, answer: ProbeResult, now: float) -> None:
        """The result of one micro-benchmark; `now` in unix seconds."""
        if (order := self._open(connection, answer.order_id, OrderKind.PROBE)) is not None:
            connection.result(answer.order_id, _probe(connection.node.node, answer, order, now))

    def take_look(self, connection: Connection, answer: LookResult) -> None:
        """Whether the node is idle."""
        if self._open(connection, answer.order_id, OrderKind.LOOK) is not None:
            connection.result(answer.order_id, Looked(answer.idle))

    def _open(self, connection: Connection, order_id: str, kind: OrderKind) -> Order | None:
        """The open order that is answered; None without one, which is counted."""
        if (order := connection.open_order(order_id, kind)) is None:
            self._count_without_order(connection)
        return order

    def _count_without_order(self, connection: Connection) -> None:
        """Raises Exhausted for one too many."""
        self.metrics.rejected.labels("answer_without_order").inc()
        if not connection.may_answer_without_order():
            most = f"{ANSWERS_WITHOUT_ORDER:g}"
            raise Exhausted(f"order_id: more than {most} answers to orders that are not open on this connection")


def _refuse(connection: Connection, order_ids: Iterable[str], error: Unreadable) -> Invalid:
    """What ends the stream; whoever waits for the results hears of it."""
    refused = Invalid(f"cell.outcome: {error}")
    for order_id in order_ids:
        connection.result(order_id, refused)
    return refused


def _probe(node: str, result: Any, order: Order, now: float) -> BenchmarkResult:
    """Raises Invalid for what no benchmark can have measured."""
    try:
        if len(result.seconds) > order.content["repeats"]:
            raise ValueError(f"probe.seconds: {len(result.seconds)} values, {order.content['repeats']} were ordered")
        check_durations("probe.seconds", result.seconds)
        check_time("probe.started_at", result.started_at, now)
        check_time("probe.ended_at", result.ended_at, now)
        correct = result.correct if result.HasField("correct") else None
        if correct is False and result.seconds:
            raise ValueError("probe.seconds: a wrong answer has no time")
        if not DIGEST.fullmatch(result.digest):
            raise ValueError("probe.digest: expected 64 hexadecimal digits or none")
    except ValueError as error:
        raise Invalid(str(error)) from None
    return BenchmarkResult(
        result.order_id,
        node,
        sanitize_text(result.benchmark),
        result.beside_job,
        min(result.started_at, now),
        min(result.ended_at, now),
        tuple(result.seconds),
        sanitize_text(result.error),
        correct,
        result.digest,
    )
