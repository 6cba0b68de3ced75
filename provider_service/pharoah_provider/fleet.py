"""The nodes that are connected now, and orders to them. In memory: a node that reconnects is simply here again."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any, TypeVar

from pharoah_benchmarks.campaign.cell import Cell, CellResult, NotBuilt
from pharoah_benchmarks.environments.answer import BUILD_SECONDS
from pharoah_benchmarks.micro import SLOW_SECONDS, device_count, is_on_gpu
from pharoah_learning.evidence import BenchmarkResult
from pharoah_provider.agent_connection import (
    AgentAway,
    CameLate,
    Connection,
    HazardModelOrder,
    Looked,
    NoRoomThere,
    NotBuiltThere,
    OrderKind,
    PeerPlace,
    WrongAnswer,
)
from pharoah_provider.cell_results import REST_BYTES, AnswerBounds, is_of
from pharoah_provider.contexts import Contexts
from pharoah_provider.domain import Node, NodeAdvice, NodeState
from pharoah_serving.clock import Clock
from pharoah_serving.errors import Invalid, NotReady
from pharoah_system.had_time import MAX_WALL_RATIO

T = TypeVar("T")


KEPT_PROBES = 20
"""Intervals of orders that are kept per node: reports of a window come seconds after it, not minutes."""
START_SECONDS = 20.0
"""How long an agent may take to start what measures, and to make its inputs on the CPU."""
CELL_ORDER_SECONDS = 180.0
"""What a cell may take beyond its limit and a build: its agent gives up after 160 s (`agent.fork_servers`)."""
SLOW_START_SECONDS = 90.0
"""How long an agent may take beside a job to start what measures: seconds of work, at a tenth of the time (ADR 44)."""
AGED_SECONDS = 1_500.0
"""A connection that is so old has ended because of its age: gRPC ends each after half an hour, give or take a tenth
(`pharoah_serving.listener`). An agent that a cell has ended is back with a young one."""
BACK_SECONDS, BACK_POLL_SECONDS = 60.0, 0.2
"""How long an agent whose connection has ended is waited for, which is back within 12 s (`agent.stream`); how often it
is looked for."""
LOOK_SECONDS = 5.0
"""An agent looks for a third of a second; one that has not answered by now has not seen its node idle."""


class Fleet:
    """All connected nodes, and what is known of each."""

    def __init__(self, clock: Clock | None = None, contexts: Contexts | None = None) -> None:
        self._clock = clock or Clock()
        self.contexts = contexts or Contexts()
        self._connections: dict[str, Connection] = {}
        self._known: dict[str, Node] = {}
        self._hosts: dict[str, set[str]] = defaultdict(set)
        """Host to the names of its nodes."""
        self._facts_changed_at: dict[str, float] = {}
        """Node to when it came with other facts than before, unix seconds."""
        self._states: dict[str, NodeState] = {}
        self._advice: dict[str, NodeAdvice] = {}
        self._hazard_model = HazardModelOrder()
        self._began_at = self._clock.steady()
        self._left_at: dict[str, float] = {}
        """Node to when its agent was connected last, seconds of the steady clock."""
        self._probed: dict[str, list[list[float]]] = {}
        """Node to [start, end] of its newest orders, in unix seconds."""

    def remember(self, nodes: Iterable[Node], facts_since: Mapping[str, float]) -> None:
        """Nodes from before a restart: runs may go on there although their agents are not connected. `facts_since`:
        node to when it came with its facts, unix seconds."""
        self._facts_changed_at.update(facts_since)
        for node in nodes:
            if node.node not in self._known:
                self._know(node)

    def connect(self, node: Node, held: bool = False) -> Connection:
        """A node that connects again replaces its old connection. Its agent is sent what is known of the node."""
        if old := self._connections.get(node.node):
            old.fail()
        self._know(node)
        self._connections[node.node] = connection = Connection(node, self._clock, held)
        connection.send_state(self.state(node.node))
        if self._hazard_model.content:
            connection.send_hazard_model(self._hazard_model)
        return connection

    def disconnect(self, connection: Connection) -> None:
        connection.fail()
        if self._connections.get(connection.node.node) is connection:
            del self._connections[connection.node.node]
            self._left_at[connection.node.node] = self._clock.steady()

    def list_connected(self) -> list[Node]:
        """Nodes that can be measured now."""
        return [connection.node for _, connection in sorted(self._connections.items()) if not connection.held]

    def server_facts(self, node: str) -> tuple[str, ...]:
        """The facts of a node that can be measured now; none for another one. It is asked for each report of a run."""
        connection = self._connections.get(node)
        return () if connection is None or connection.held else connection.node.server_facts

    def list_held(self) -> frozenset[str]:
        """Connected nodes that have changed their facts too often for one day."""
        return frozenset(name for name, connection in self._connections.items() if connection.held)

    def reconnect(self, node: str) -> None:
        """Let the agent of a node connect again, if it is connected."""
        if node in self._connections:
            self._connections[node].close()

    def end_streams(self) -> None:
        """End all streams, before a restart. Agents go on with their cells, and answer when they are back."""
        for connection in self._connections.values():
            connection.close()

    def is_connected(self, node: str) -> bool:
        return node in self._connections

    def silent_seconds(self, node: str) -> float:
        """How long nothing was heard of a node's agent; infinite for one that is not connected."""
        connection = self._connections.get(node)
        return self._clock.steady() - connection.heard_at if connection else inf

    def away_seconds(self, node: str) -> float:
        """For how long the agent of a node was not connected, as far as this process knows."""
        if node in self._connections:
            return 0.0
        return self._clock.steady() - self._left_at.get(node, self._began_at)

    def node(self, name: str) -> Node | None:
        """A node as its agent described it last, connected or not."""
        return self._known.get(name)

    def facts_changed_at(self, name: str) -> float:
        """When a node came with other facts than before, in unix seconds; 0 when it never did."""
        return self._facts_changed_at.get(name, 0.0)

    def host_of(self, name: str) -> list[Node]:
        """All nodes on the host of a node, itself included, connected or not. Empty for a node that is not known."""
        node = self._known.get(name)
        return [self._known[other] for other in sorted(self._hosts[node.host_id])] if node else []

    def busy(self, node: str) -> bool:
        """Whether the node works on an order: a cell of a campaign, or micro-benchmarks, also those of a sidecar."""
        goes_on = any(ended == inf for _, ended in self._probed.get(node, ()))
        return goes_on or (node in self._connections and self._connections[node].busy)

    def cores_busy(self, name: str) -> bool:
        """Whether the node, or another one on its cores, works on an order."""
        node = self._known.get(name)
        return self.busy(name) or any(
            node is not None and node.shares_cores(other) and self.busy(other.node) for other in self.host_of(name)
        )

    def state(self, node: str) -> NodeState:
        """What is validated of a node, and what is to be done with it."""
        return replace(self._states.get(node, NodeState()), advice=self._advice.get(node, NodeAdvice()))

    def set_state(self, node: str, state: NodeState) -> None:
        """What is validated of a node has changed: its agent hears of it, now or when it connects."""
        self._states[node] = state
        self._send_state(node)

    def set_advice(self, node: str, advice: NodeAdvice) -> None:
        """What is to be done with a node has changed: its agent hears of it, now or when it connects."""
        if advice != self._advice.get(node, NodeAdvice()):
            self._advice[node] = advice
            self._send_state(node)

    def set_hazard_model(self, model: HazardModelOrder) -> None:
        """Another model for forecasts on all nodes."""
        if model != self._hazard_model:
            self._hazard_model = model
            for connection in self._connections.values():
                connection.send_hazard_model(model)

    def _send_state(self, node: str) -> None:
        if node in self._connections:
            self._connections[node].send_state(self.state(node))

    def was_probed(self, node: str, began: float, ended: float) -> bool:
        """Whether an order of ours ran on the host of a node between these unix seconds: what a job there did then says
        nothing about the node."""
        names = [other.node for other in self.host_of(node)] or [node]
        intervals = (interval for name in names for interval in self._probed.get(name, ()))
        return any(start < ended and began < end for start, end in intervals)

    def last_seen(self) -> dict[str, float]:
        return {name: connection.last_seen for name, connection in self._connections.items()}

    def now(self) -> float:
        """Unix seconds by the clock that `last_seen` reads: the wall clock may show another time."""
        return self._clock.wall()

    def peers(self, node: Node) -> list[Node]:
        """Connected nodes of the same context that do not share its cores; where there are none, those of the nearest
        context that is known."""
        others = [peer for peer in self.list_connected() if peer.node != node.node and not peer.shares_cores(node)]
        own, near = self.contexts.find_name(node), self.contexts.find_monitored_context(node)
        same = [peer for peer in others if self.contexts.find_name(peer) == own]
        return same or [peer for peer in others if self.contexts.find_name(peer) == near]

    async def look(self, node: str) -> bool:
        """Whether the agent of a node sees it idle now. An agent that is away, does not answer or was asked too often
        has not seen it idle."""
        try:
            async with asyncio.timeout(LOOK_SECONDS), self._connection(node).order(OrderKind.LOOK, {}) as results:
                return _require_answer(await results.get(), Looked, node).idle
        except (NotReady, TimeoutError):
            return False

    async def probe(
        self,
        node: str,
        benchmarks: list[str],
        repeats: int,
        beside_job: bool,
        limit_seconds: float,
        *,
        only_if_idle: bool = False,
        duty: float = 1.0,
        peer: PeerPlace | None = None,
        patience: float = 1.0,
    ) -> list[BenchmarkResult]:
        """Run micro-benchmarks on a node. `only_if_idle`: the agent looks first, and refuses on a node that is in use.

        `duty` is the share of the time in which they may work; each takes up to `limit_seconds / duty`. With `peer`,
        one micro-benchmark together with another node, which has an order of its own. `patience`: how many times the
        longest time of an idle node is waited for.

        Raises NotReady when the node is not connected or does not answer, ValueError for a limit that is no time or a
        duty that is no share.
        """
        if not 0 < limit_seconds < inf:
            raise ValueError(f"limit_seconds: {limit_seconds} is not a time")
        if not 0 < duty <= 1:
            raise ValueError(f"duty: {duty} is not a share of the time")
        content: dict[str, Any] = {
            "benchmarks": benchmarks,
            "repeats": repeats,
            "beside_job": beside_job,
            "limit_seconds": limit_seconds,
            "only_if_idle": only_if_idle,
            "duty": duty,
        }
        if peer is not None:
            content["peer"] = peer
        connection, probes = self._connection(node), list[BenchmarkResult]()
        try:
            with self.note(node):
                async with (
                    asyncio.timeout(
                        patience * _longest_seconds(benchmarks, limit_seconds / duty, duty, connection.node)
                    ),
                    connection.order(OrderKind.PROBE, content) as results,
                ):
                    waiting = set(benchmarks)
                    while waiting:
                        result = _require_answer(await results.get(), BenchmarkResult, node)
                        if result.benchmark not in waiting or len(result.seconds) > repeats:
                            raise WrongAnswer(f"node {node}: its agent answers another order than it was sent")
                        waiting.remove(result.benchmark)
                        probes.append(replace(result, beside_job=beside_job))
        except TimeoutError:
            raise CameLate(f"node {node}: the micro-benchmarks did not come back in time") from None
        return probes

    async def run_cell(self, node: str, cell: Cell, order_id: str = "") -> CellResult:
        """Run one cell on a node. Raises NotReady when the node is not there or goes away, or has no room for a
        process, WrongAnswer when its agent answers another order, NotBuiltThere when it cannot build the environment of
        the cell.

        With an `order_id` the order can be sent again, and the agent keeps its result until `release`. So it is sent
        again when the connection ends because of its age, while the agent works on.
        """
        connection = self._connection(node)
        try:
            with self.note(node):
                # All limits there run on the time that the cell has had, so a busy node takes longer (ADR 68).
                longest = MAX_WALL_RATIO * (cell.limit_seconds + CELL_ORDER_SECONDS)
                async with asyncio.timeout(longest + (BUILD_SECONDS if cell.environment else 0)):
                    while (result := await self._result_of(connection, cell, order_id)) is None:
                        connection = await self._next_connection(connection)
                    return result
        except TimeoutError:
            raise CameLate(f"node {node}: cell {cell.id} did not come back in time") from None

    async def _result_of(self, connection: Connection, cell: Cell, order_id: str) -> CellResult | None:
        """The result of a cell; None when the connection has ended because of its age. Raises like `run_cell`."""
        node = connection.node.node
        content = {"cell": cell.to_json(), "limit_seconds": cell.limit_seconds}
        longest_bytes = AnswerBounds.from_cell(cell).result_bytes + REST_BYTES  # the id of the order, and lengths
        async with connection.order(OrderKind.CELL, content, order_id, longest_bytes) as results:
            answer = await results.get()
            if answer is None and order_id and self._clock.steady() - connection.began_at >= AGED_SECONDS:
                return None
            if isinstance(answer, NotBuilt) and answer.cell == cell.id and answer.may_be_tried_again:
                raise NoRoomThere(f"node {node}: {answer.not_built}")
            if isinstance(answer, NotBuilt) and answer.cell == cell.id and cell.environment:
                raise NotBuiltThere(f"node {node}: {cell.environment}: {answer.not_built}")
            result = _require_answer(answer, CellResult, node)
            if not is_of(result, cell):
                raise WrongAnswer(f"node {node}: its agent answers another order than it was sent")
            return result

    async def _next_connection(self, ended: Connection) -> Connection:
        """The connection of an agent that comes back. Raises NotReady when it does not, and when it is another node by
        its facts."""
        name = ended.node.node
        try:
            async with asyncio.timeout(BACK_SECONDS):
                while self._connections.get(name, ended) is ended:
                    await asyncio.sleep(BACK_POLL_SECONDS)
        except TimeoutError:
            raise AgentAway(f"node {name}: its agent went away") from None
        new = self._connection(name)
        if new.held or (new.node.facts_id, new.node.device_id) != (ended.node.facts_id, ended.node.device_id):
            raise NotReady(f"node {name}: its facts have changed")
        return new

    def release(self, node: str, order_id: str) -> None:
        """The result of an order is stored, or nobody waits for it. An agent that is away keeps it for a while."""
        if node in self._connections:
            self._connections[node].release(order_id)

    def _know(self, node: Node) -> None:
        if before := self._known.get(node.node):
            self._hosts[before.host_id].discard(node.node)
            if (before.facts_id, before.device_id) != (node.facts_id, node.device_id):
                self._facts_changed_at[node.node] = self._clock.wall()
        self._known[node.node] = node
        self._hosts[node.host_id].add(node.node)

    @contextlib.contextmanager
    def note(self, node: str) -> Iterator[None]:
        """While an order of ours runs on a node; when that was is kept."""
        interval = [self._clock.wall(), inf]
        intervals = self._probed.setdefault(node, [])
        intervals.append(interval)
        try:
            yield
        finally:
            interval[1] = self._clock.wall()
            del intervals[:-KEPT_PROBES]

    def _connection(self, node: str) -> Connection:
        if node not in self._connections:
            raise AgentAway(f"node {node} is not connected")
        return self._connections[node]


def _longest_seconds(benchmarks: Collection[str], work_seconds: float, duty: float, node: Node) -> float:
    """How long an order may take, with the start of what measures, its inputs and the checks of its answers."""
    start = START_SECONDS + (SLOW_START_SECONDS if duty < 1 else 0.0)
    gpus = sum(device_count(benchmark, node.server_facts) for benchmark in benchmarks if is_on_gpu(benchmark))
    return work_seconds * len(benchmarks) + start + SLOW_SECONDS * gpus


def _require_answer(result: Any, kind: type[T], node: str) -> T:
    """What an order is answered with. Raises WrongAnswer for anything else, NotReady for an agent that has gone."""
    if result is None:
        raise AgentAway(f"node {node}: its agent went away")
    if isinstance(result, Invalid):
        raise WrongAnswer(f"node {node}: {result}")
    if not isinstance(result, kind):
        raise WrongAnswer(f"node {node}: its agent answers another order than it was sent")
    return result
