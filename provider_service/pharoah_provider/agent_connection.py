"""The connection to the agent of one node: orders out, results in."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from pharoah_provider.domain import Node, NodeState
from pharoah_serving.clock import Clock
from pharoah_serving.errors import NotReady
from pharoah_serving.quotas import TokenBucket

ANSWERS_WITHOUT_ORDER, ANSWERS_WITHOUT_ORDER_PER_SECOND = 32.0, 0.1
"""Answers to orders that are not open: so many at once, and then one in ten seconds. An agent that works gives them for
orders that were given up meanwhile, and it stops when it hears of that: one for a cell, and those micro-benchmarks that
have ended within the time of a message."""


class WrongAnswer(NotReady):
    """An agent answers another order than it was sent."""


class NotBuiltThere(NotReady):
    """A node cannot build the environment of a cell."""


class AgentAway(NotReady):
    """The agent or worker that did a work went away."""


class CameLate(NotReady):
    """The agent is there, and the result of a work has not come back in time."""


class NoRoomThere(NotReady):
    """A node had no memory, space or processor time for a work, which has not run to its end."""


class OrderKind(StrEnum):
    """What an agent can be sent."""

    PROBE = "probe"
    CELL = "cell"
    NODE_STATE = "node_state"
    HAZARD_MODEL = "hazard_model"
    LOOK = "look"
    """Whether anything runs on the node that is not the agent's own."""
    STOP = "stop"
    """Stop working on the order with this id, and forget its result: nobody waits for it any more."""


class PeerPlace(NamedTuple):
    """The place of a node among those that measure together (`ProbePeer`)."""

    rank: int
    size: int
    rendezvous: str
    """HOST:PORT of rank 0."""
    partner: str
    """The other node."""
    token: str
    """What the nodes of this meeting know and nobody else does."""


class HazardModelOrder(NamedTuple):
    """The hazard model of nodes as agents get it; empty where none holds."""

    content: bytes = b""
    signature: bytes = b""


@dataclass(frozen=True)
class Order:
    """What an agent is sent; the servicer makes a message of it."""

    kind: OrderKind
    content: dict[str, Any]
    order_id: str = ""
    """Empty where no result is expected."""


@dataclass
class _OpenOrder:
    """An order whose results are awaited."""

    order: Order
    results: asyncio.Queue[Any]
    longest_answer_bytes: int
    """The longest message with its result; 0 where it is as short as all others."""
    answered: bool = False


@dataclass(frozen=True)
class Looked:
    """What an agent has seen when it looked at its node."""

    idle: bool


class Connection:
    """One connected agent: orders out, results in."""

    def __init__(self, node: Node, clock: Clock, held: bool = False) -> None:
        """`held`: the node has other facts than those it is known by, so that nothing it measures may count."""
        self.node = node
        self.held = held
        self.began_at = clock.steady()
        self.orders: asyncio.Queue[Order | None] = asyncio.Queue()
        """None ends the stream; the agent connects again."""
        self.last_seen = clock.wall()
        """Unix seconds."""
        self.heard_at = self.began_at
        """Seconds of the steady clock at which its newest message came."""
        self._waiting: dict[str, _OpenOrder] = {}
        self._clock = clock
        self._without_order = TokenBucket.full(ANSWERS_WITHOUT_ORDER, ANSWERS_WITHOUT_ORDER_PER_SECOND, clock.steady())

    @contextlib.asynccontextmanager
    async def order(
        self, kind: OrderKind, content: dict[str, Any], order_id: str = "", longest_answer_bytes: int = 0
    ) -> AsyncIterator[asyncio.Queue[Any]]:
        """Send an order; its results arrive on the queue. An order that is given up is stopped on the node as well.

        `order_id`: of an order that may be sent again; an agent that has done it already answers with its result.
        `longest_answer_bytes`: of a message with its result, where it may be longer than others.
        """
        order_id = order_id or secrets.token_hex(8)
        order, results = Order(kind, content, order_id), asyncio.Queue[Any]()
        self._waiting[order_id] = _OpenOrder(order, results, longest_answer_bytes)
        try:
            self.orders.put_nowait(order)
            yield results
        except BaseException:
            self.orders.put_nowait(Order(OrderKind.STOP, {}, order_id))
            raise
        finally:
            del self._waiting[order_id]

    def heard(self, clock: Clock) -> float:
        """A message has come; the unix time now."""
        self.last_seen, self.heard_at = clock.wall(), clock.steady()
        return self.last_seen

    def open_order(self, order_id: str, kind: OrderKind) -> Order | None:
        """The order of this kind that an answer is awaited for; None where its answer need not be looked at."""
        waiting = self._waiting.get(order_id)
        return None if waiting is None or waiting.answered or waiting.order.kind is not kind else waiting.order

    def open_cells(self) -> dict[str, str]:
        """The orders of cells whose results are awaited: id to cell, as JSON."""
        return {
            number: waiting.order.content["cell"]
            for number, waiting in self._waiting.items()
            if waiting.order.kind is OrderKind.CELL and not waiting.answered
        }

    @property
    def longest_answer_bytes(self) -> int:
        """The longest message that an open order can be answered with; 0 for what every message may have."""
        return max((one.longest_answer_bytes for one in self._waiting.values() if not one.answered), default=0)

    def may_answer_without_order(self) -> bool:
        """Whether one more answer to no open order can be that of an agent that works; it is counted."""
        return self._without_order.take(1.0, self._clock.steady())

    def result(self, order_id: str, result: Any) -> bool:
        """False when nobody waits for it any more."""
        if (waiting := self._waiting.get(order_id)) is None:
            return False
        waiting.answered = waiting.order.kind is not OrderKind.PROBE  # that one has a result for each micro-benchmark
        waiting.results.put_nowait(result)
        return True

    @property
    def busy(self) -> bool:
        """Whether results of an order are awaited."""
        return bool(self._waiting)

    def release(self, order_id: str) -> None:
        """The result of an order is stored: its agent need not keep it."""
        self.orders.put_nowait(Order(OrderKind.STOP, {}, order_id))

    def send_state(self, state: NodeState) -> None:
        """What is known of the node, for its agent."""
        self.orders.put_nowait(Order(OrderKind.NODE_STATE, dict(vars(state))))

    def send_hazard_model(self, model: HazardModelOrder) -> None:
        """The model with which sidecars on the node forecast its failures."""
        self.orders.put_nowait(Order(OrderKind.HAZARD_MODEL, model._asdict()))

    def close(self) -> None:
        """End the stream, so that the agent connects again and sends its facts anew."""
        self.orders.put_nowait(None)

    def fail(self) -> None:
        """The agent is gone: every order that waits for a result gets none."""
        for waiting in self._waiting.values():
            waiting.results.put_nowait(None)
