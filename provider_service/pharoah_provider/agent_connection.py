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


class WrongAnswer(NotReady):
    """An agent answers another order than it was sent."""


class NotBuiltThere(NotReady):
    """A node cannot build the environment of a cell."""


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
        self._waiting: dict[str, asyncio.Queue[Any]] = {}

    @contextlib.asynccontextmanager
    async def order(
        self, kind: OrderKind, content: dict[str, Any], order_id: str = ""
    ) -> AsyncIterator[asyncio.Queue[Any]]:
        """Send an order; its results arrive on the queue. An order that is given up is stopped on the node as well.

        `order_id`: of an order that may be sent again; an agent that has done it already answers with its result.
        """
        order_id = order_id or secrets.token_hex(8)
        results: asyncio.Queue[Any] = asyncio.Queue()
        self._waiting[order_id] = results
        try:
            self.orders.put_nowait(Order(kind, content, order_id))
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
        for results in self._waiting.values():
            results.put_nowait(None)
