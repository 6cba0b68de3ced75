"""A monitor on a real storage and a real fleet, under a clock that is set by hand: no sleeping, no sockets.

Reports take the way of the service: encoded as a request, decoded, taken once, scored, counted. Nodes answer
micro-benchmarks with the seconds that the caller sets.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah.sidecar.run_reporter import RENEWAL_SECONDS
from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.release import Release
from pharoah_protocol.reports import ReportedLevels, level
from pharoah_protocol.v1 import ReportRequest
from pharoah_provider.agent_connection import Connection, Looked, OrderKind
from pharoah_provider.domain import Node, NodeState, Run
from pharoah_provider.fleet import Fleet
from pharoah_provider.monitoring.budgets import SHARE
from pharoah_provider.monitoring.guest_orders import GuestOrders
from pharoah_provider.monitoring.intake import Intake
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.services.runs import decode
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_serving.clock import Clock
from pharoah_serving.metrics import Metrics
from tests.harness.database import new_database
from tests.harness.listings import listed

BEGAN_AT = 1_700_000_000.0
HEALTHY_SECONDS = 0.01
"""What a micro-benchmark takes on a healthy node."""
FACTS = ("device=cpu", "threads=1")
PROVIDER_KEY = Ed25519PrivateKey.from_private_bytes(b"p" * 32)


@dataclass(frozen=True)
class SentOrder:
    """An order for micro-benchmarks, as the agent of a node received it."""

    node: str
    began_at: float
    ended_at: float
    """Unix seconds."""


@dataclass
class HandClock:
    """Both clocks of the provider; time passes only when a test sets it."""

    now: float = BEGAN_AT

    @property
    def clock(self) -> Clock:
        return Clock(wall=lambda: self.now, steady=lambda: self.now)


@dataclass
class MonitoredSite:
    """One provider's monitor with nodes and runs."""

    storage: DuckStorage
    fleet: Fleet
    monitor: Monitor
    intake: Intake
    time: HandClock
    metrics: Metrics
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(lambda: HEALTHY_SECONDS))
    """What a micro-benchmark takes now, by node."""
    in_use: set[str] = field(default_factory=set)
    """Nodes whose agents see that somebody uses them."""
    refusals: dict[str, str] = field(default_factory=dict)
    """Node to the error by which its agent refuses micro-benchmarks beside a job."""
    wrong: set[str] = field(default_factory=set)
    """Nodes whose micro-benchmarks compute something wrong."""
    digests: dict[str, str] = field(default_factory=dict)
    """The digest of the numbers that a node computes; an answer that has one is right."""
    mute: set[str] = field(default_factory=set)
    """Nodes whose agents are connected and send nothing."""
    order_seconds: float = 0.0
    """How long an order takes that has no limit: the clock goes on by it."""
    ordered: list[SentOrder] = field(default_factory=list)
    """All orders for micro-benchmarks that agents have received."""
    together: list[tuple[str, ...]] = field(default_factory=list)
    """The nodes of each order that has a partner: the one that got it first."""
    states: dict[str, list[NodeState]] = field(default_factory=lambda: defaultdict(list))
    """What the agent of each node has been sent."""
    _agents: dict[str, tuple[Connection, asyncio.Task[None]]] = field(default_factory=dict)
    _next: dict[bytes, int] = field(default_factory=lambda: defaultdict(int))

    async def add_node(
        self, name: str, cpu: int, *facts: str, host: str = "", places: tuple[str, ...] = (), peer_address: str = ""
    ) -> None:
        """A node that the provider knows and whose agent is connected. Nodes with the same facts are peers; each is a
        host of its own unless one is named."""
        host = host or f"host of {name}"
        node = Node(name, b"k" * 32, "boot", (*FACTS, *facts), ("device=cpu",), (cpu,), host=host, places=places,
                    peer_address=peer_address)  # fmt: skip
        await self.storage.nodes.put_node(node, self.time.now)
        connection = self.fleet.connect(node)
        self._agents[name] = connection, asyncio.create_task(self._answer(connection))

    def continue_after(self, before: MonitoredSite) -> None:
        """Runs go on to number their reports as they did before a restart of the provider."""
        self._next = before._next

    async def disconnect(self, name: str) -> None:
        connection, task = self._agents.pop(name)
        self.fleet.disconnect(connection)
        task.cancel()
        await asyncio.wait({task})

    async def close(self) -> None:
        await self.monitor.close()
        for name in list(self._agents):
            await self.disconnect(name)

    async def join(self, node: str, ranks: int = 1, run_id: bytes = b"", **changes: Any) -> Run:
        run_id = run_id or secrets.token_bytes(16)
        before = await self.storage.runs.run(run_id)
        content = {
            "run_id": run_id,
            "tenant": "acme",
            "node": node,
            "attempt": before.attempt + 1 if before else 1,
            "ranks": ranks,
            "beside_job": True,
            "limit_seconds": 5.0,
            "joined_at": self.time.now,
        }
        run = Run(**{**content, **changes})
        await self.storage.runs.put_run(run)
        self.monitor.watch(run, await self.monitor.list_missed_since(before) if before else ())
        return run

    async def report(self, run: Run, levels: Sequence[ReportedLevels]) -> None:
        """What the ranks of a run report of the second that is over now, with a new node ticket when it needs one."""
        if self.monitor.runs.ticket_seconds(run.run_id) >= RENEWAL_SECONDS:
            self.monitor.runs.renew(run.run_id, self.time.now)
        request = ReportRequest(
            run_id=run.run_id,
            attempt=run.attempt,
            first_second=self._next[run.run_id],
            first_ended_at=self.time.now,
            step_levels=[one.step for one in levels],
            memory_levels=[one.memory for one in levels],
        )
        self._next[run.run_id] += 1
        await self.intake.take(run, decode(request, run.ranks, self.time.now))

    async def feel(self, run: Run, *ratios: float, seconds: int = 1) -> None:
        """So many seconds pass in which the ranks of a run take these ratios of their baseline."""
        for _ in range(seconds):
            await self.passes(1.0)
            await self.feel_now(run, *ratios)

    async def feel_now(self, run: Run, *ratios: float) -> None:
        """The ranks of a run report that the second that is over now took these ratios of their baseline."""
        await self.report(run, [ReportedLevels(level(ratio)) for ratio in ratios])
        await self.validated()

    async def passes(self, seconds: float) -> None:
        """Time passes, and the monitor looks around."""
        self.time.now += seconds
        for connection, _ in self._agents.values():
            if connection.node.node not in self.mute:
                connection.heard(self.time.clock)  # telemetry comes every two seconds
        await self.monitor.tick()
        await self.validated()

    async def validated(self) -> None:
        """Wait for the looks and the validations that go on."""
        if self.monitor._looking is not None:
            await asyncio.wait({self.monitor._looking})
        while tasks := [*self.monitor._validations.tasks(), *self.monitor._watch_fleet.checks.tasks()]:
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # for the callbacks that remove them

    async def alerts(self) -> list[tuple[str, str]]:
        """Node and state of every incident."""
        return [(row["node"], row["state"]) for row in await listed(self.storage, "alerts")]

    async def _answer(self, connection: Connection) -> None:
        node = connection.node.node
        while (order := await connection.orders.get()) is not None:
            if order.kind is OrderKind.NODE_STATE:
                self.states[node].append(NodeState(**order.content))
            if order.kind is OrderKind.LOOK:
                connection.result(order.order_id, Looked(node not in self.in_use))
            if order.kind is OrderKind.PROBE:
                for result in self._probed(node, order.order_id, order.content):
                    connection.result(order.order_id, result)

    def _probed(self, node: str, order_id: str, content: Mapping[str, Any]) -> list[BenchmarkResult]:
        benchmarks, beside = content["benchmarks"], content["beside_job"]
        together = [node, *([content["peer"].partner] if "peer" in content else [])]
        if len(together) > 1:
            self.together.append(tuple(together))
        took, error = (max(self.seconds[one] for one in together),) * content["repeats"], ""
        began = self.time.now
        if beside and node in self.refusals:
            took, error = (), self.refusals[node]
        else:
            longest = content["limit_seconds"] / content["duty"] * len(benchmarks)
            self.time.now += min(self.order_seconds, longest)
            self.ordered.append(SentOrder(node, began, self.time.now))
        now, correct = self.time.now, None
        if node in self.wrong:
            took, correct = (), False
        digest = self.digests.get(node, "")
        correct = correct if correct is False else bool(digest) or None
        return [
            BenchmarkResult(order_id, node, name, beside, began, now, took, error, correct, digest)
            for name in benchmarks
        ]


@asynccontextmanager
async def monitored_site(
    folder: Path,
    release: Release | None = None,
    time: HandClock | None = None,
    settle_seconds: float = 0.0,
    share: float = SHARE,
    check_pause_seconds: float = 0.0,
    alert_url: str = "",
) -> AsyncIterator[MonitoredSite]:
    """A monitor on the database of a folder. Again with the same folder and time: a restart of the provider."""
    time = time or HandClock()
    new_database(folder / "monitored.duckdb")
    storage, metrics, fleet = DuckStorage(folder / "monitored.duckdb"), Metrics(), Fleet(time.clock)
    guests = GuestOrders(fleet, metrics, time.clock, PROVIDER_KEY)
    monitor = Monitor(
        storage, fleet, metrics, settle_seconds, time.clock, share, check_pause_seconds, alert_url, guests
    )
    site = MonitoredSite(storage, fleet, monitor, Intake(storage.runs, monitor, metrics, time.clock), time, metrics)
    try:
        if release is not None:
            monitor.use(release)
        await monitor.restore()
        yield site
    finally:
        await site.close()
        storage.close()
