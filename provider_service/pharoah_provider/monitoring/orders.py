"""The one place that orders micro-benchmarks for monitoring: with consent, within budgets, and beside nobody unknown.

Every order passes here at the moment when it is sent. A run that comes to the host meanwhile stops it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf

from pharoah_benchmarks.micro import MicroBenchmark
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.vocabulary import Purpose
from pharoah_provider.agent_connection import PeerPlace
from pharoah_provider.domain import NOT_IDLE, Found, MeasuredOrder, Node, Run
from pharoah_provider.fleet import SLOW_START_SECONDS, Fleet
from pharoah_provider.micro_benchmarks import benchmarks_of, measure
from pharoah_provider.monitoring.budgets import FORGOTTEN_SECONDS, SHARE, Budgets
from pharoah_provider.monitoring.consent import Permission, Refusal, permission
from pharoah_provider.monitoring.guest_orders import GuestOrders
from pharoah_provider.monitoring.watched_runs import WatchedRuns
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_provider.storage.base import Storage
from pharoah_serving.clock import Clock
from pharoah_serving.errors import NotReady

log = logging.getLogger("pharoah.provider.monitoring")

OCCUPIED_SECONDS = 300.0
"""A node that its agent did not see idle is not asked again for so long: more questions would say when the node is
used."""
SHARED_SECONDS = 60.0
"""The same for a node on which somebody was seen beside a run. It is in use anyway, and a run that waits for a
validation should not wait long for somebody who was there for a moment."""
_NOBODY = ""
"""The organisation of an order that no tenant has caused."""
SEEN_IDLE_SECONDS = 10.0
"""How long a look holds for a node that is not measured itself: a validation takes less."""


@dataclass(frozen=True)
class Cause:
    """Why a round of micro-benchmarks is ordered."""

    organisation: str
    """Whose run has asked for it; empty when that is not known any more."""
    node: str
    """The node that the round is about."""
    purpose: Purpose


class Orders:
    """Sends orders, counts them, and stops them."""

    def __init__(
        self,
        fleet: Fleet,
        store: Storage,
        watched: WatchedRuns,
        clock: Clock,
        settle_seconds: float,
        guests: GuestOrders,
        share: float = SHARE,
    ) -> None:
        self._guests = guests
        self._fleet, self._store, self._watched, self._clock = fleet, store, watched, clock
        self._settle_seconds, self._budgets = settle_seconds, Budgets(share, watched.nodes_of)
        self._occupied_until: dict[str, float] = {}
        """By node that was to be idle and was not."""
        self._shared_until: dict[str, float] = {}
        """By node on which somebody was seen beside the runs."""
        self._seen_idle_at: dict[str, float] = {}
        self._going: dict[asyncio.Timeout, str] = {}
        """What ends an order that goes on, and its node."""

    async def restore(self) -> None:
        """After a restart: what was ordered in the last day still counts."""
        wall = self._clock.wall()
        orders = await self._store.orders.list_measured_orders(wall - FORGOTTEN_SECONDS)
        self._budgets.restore(orders, wall, self._clock.steady())

    def permission(self, node: str) -> Permission | Refusal | None:
        """What the runs on the host of a node say now; None for a node that is not known."""
        if (known := self._fleet.node(node)) is None:
            return None
        host = self._fleet.host_of(node)
        present = self._watched.present(other.node for other in host)
        return permission(known, host, present, self._clock.steady(), self._settle_seconds)

    def ready(self, cause: Cause, run: Run | None, *, looks_slow: bool = False) -> bool:
        """Whether a round could begin now, as far as that is known without asking an agent."""
        if not self._seconds(cause, looks_slow) or self._fleet.cores_busy(cause.node):
            return False
        reached = self._fleet.is_connected(cause.node) or self._guests.ready(run, cause.organisation)
        return reached and self.may_use(cause.node, run)

    def may_use(self, node: str, run: Run | None) -> bool:
        """Whether a node may be measured beside a run, or as an idle one, as far as that is known without a look."""
        answer = self.permission(node)
        if not isinstance(answer, Permission) or answer.beside_job is (run is None):
            return False
        return (run is None or not self._is_shared(node)) and not any(map(self._is_occupied, answer.look_at))

    def peer_seconds(self, node: str) -> float:
        """For how long a node may be measured as a peer now; 0 when it may not."""
        return 0.0 if self._fleet.cores_busy(node) else self._budgets.peer_seconds(node, self._clock.steady())

    @asynccontextmanager
    async def round(self, cause: Cause, *, looks_slow: bool = False) -> AsyncIterator[Round]:
        """Some orders for one cause. They are counted when the round ends, however it ends."""
        this = Round(self, cause, looks_slow)
        try:
            yield this
        finally:
            if this.spans:
                await complete_despite_cancellation(self._count(this))

    def stop(self, node: str) -> None:
        """A run has come to a node: nothing may go on on its host that it was not asked about."""
        host = {other.node for other in self._fleet.host_of(node)} | {node}
        for ending in [ending for ending, measured in self._going.items() if measured in host]:
            if not ending.expired():  # it ends already, because another run has come at the same moment
                ending.reschedule(asyncio.get_running_loop().time())

    async def look_after_lost(self) -> None:
        """Ask for the nodes of lost runs whether they are empty, so that they can be measured again."""
        for node in self._watched.list_lost_nodes():
            if not self._watched.on(node) and self._fleet.is_connected(node):
                await self._sees_idle(node)

    async def send(self, this: Round, node: str, run: Run | None) -> list[BenchmarkResult]:
        """One order of a round, beside `run` or on the idle node. Raises NotReady with the reason why there is none."""
        allowed = self._require_permission(node, run)
        if not await self._all_seen_idle(allowed.look_at):
            raise NotReady(f"node {node}: its host is in use")
        allowed = self._require_permission(node, run)  # runs may have come meanwhile
        if (seconds := self._compute_remaining(this, node)) <= 0:
            raise NotReady(f"node {node}: no time is left for micro-benchmarks")
        limit = min(allowed.limit_seconds, seconds / max(1, len(benchmarks_of(self._fleet, node, run is not None))))
        began, looked_slow = self._clock.steady(), this.looks_slow
        results: list[BenchmarkResult] = []
        try:
            results = await self._send(this.cause.organisation, node, run, limit)
            return results
        finally:
            seconds = _without_start(self._clock.steady() - began, results)
            this.spans.append(_Span(node, self._clock.wall(), seconds, looked_slow))

    async def _send(
        self, organisation: str, node: str, run: Run | None, limit: float, names: Sequence[str] = ()
    ) -> list[BenchmarkResult]:
        async with self._until_a_run_comes(node):
            results = await self._guests.measure(
                run,
                organisation,
                limit,
                lambda: measure(self._fleet, node, run is not None, limit, only_if_idle=run is None, names=names),
            )
        return self._on_free_node(results, node, run)

    @asynccontextmanager
    async def _until_a_run_comes(self, node: str) -> AsyncIterator[None]:
        """What is done inside ends when `stop` is called for the node. Raises NotReady then."""
        try:
            async with asyncio.timeout(None) as ending:
                self._going[ending] = node
                yield
        except TimeoutError:
            raise NotReady(f"node {node}: a run has come to its host") from None
        finally:
            self._going.pop(ending, None)

    def _on_free_node(self, results: list[BenchmarkResult], node: str, run: Run | None) -> list[BenchmarkResult]:
        """The results, unless the agent has seen somebody there. Raises NotReady."""
        if any(result.error == NOT_IDLE for result in results):
            if run is None:
                self._note_occupied(node)
            else:
                self._shared_until[node] = self._clock.steady() + SHARED_SECONDS
            raise NotReady(f"node {node}: its agent sees somebody there whom the provider does not know")
        return results

    async def check(self, node: str, benchmark: str) -> BenchmarkResult:
        """A micro-benchmark on an idle node that no run asks for. It disturbs no job, so it counts for no budget of a
        tenant. Raises NotReady with the reason why there is none."""
        await self._require_idle(node)
        results = await self._send(_NOBODY, node, None, inf, (benchmark,))
        if not results:
            raise NotReady(f"node {node}: it does not have the micro-benchmark {benchmark}")
        return results[0]

    async def check_together(self, node: Node, partner: Node, benchmark: MicroBenchmark) -> BenchmarkResult:
        """The result of the first of two idle nodes that measure together; one of them has a peer address. Raises
        NotReady with the reason why there is none."""
        first, second = (node, partner) if node.peer_address else (partner, node)
        for one in (first, second):
            await self._require_idle(one.node)
        self._require_permission(first.node, None)  # a run may have come while the other one was asked
        token = secrets.token_urlsafe()
        places = {
            first.node: PeerPlace(0, 2, first.peer_address, second.node, token),
            second.node: PeerPlace(1, 2, first.peer_address, first.node, token),
        }
        tasks = {name: asyncio.create_task(self._in_place(name, benchmark, at)) for name, at in places.items()}
        try:
            await asyncio.gather(*tasks.values())
        finally:  # without the other one, either waits in vain
            for task in tasks.values():
                task.cancel()
            await asyncio.wait(tasks.values())
        return tasks[node.node].result()

    async def _in_place(self, node: str, benchmark: MicroBenchmark, place: PeerPlace) -> BenchmarkResult:
        async with self._until_a_run_comes(node):
            results = await self._fleet.probe(
                node,
                [benchmark.name],
                benchmark.repeats,
                False,
                benchmark.limit_seconds,
                only_if_idle=True,
                peer=place,
            )
        return self._on_free_node(results, node, None)[0]

    async def _require_idle(self, node: str) -> None:
        """Raises NotReady unless an idle node may be measured, and its agent sees it idle."""
        allowed = self._require_permission(node, None)
        if not await self._all_seen_idle(allowed.look_at):
            raise NotReady(f"node {node}: its host is in use")
        self._require_permission(node, None)  # runs may have come meanwhile

    def _require_permission(self, node: str, run: Run | None) -> Permission:
        answer = self.permission(node)
        if not isinstance(answer, Permission):
            raise NotReady(f"node {node}: {answer or 'it is not known'}")
        if answer.beside_job is (run is None):
            raise NotReady(f"node {node}: {'it is not idle' if run is None else 'the run is over'}")
        if self._fleet.cores_busy(node):
            raise NotReady(f"node {node}: another order runs on its cores")
        if run is not None and self._is_shared(node):
            raise NotReady(f"node {node}: somebody was seen there whom the provider does not know")
        return answer

    def _seconds(self, cause: Cause, looks_slow: bool) -> float:
        now = self._clock.steady()
        if cause.purpose is Purpose.LEVEL:
            return self._budgets.level_seconds(cause.organisation, now)
        return self._budgets.validation_seconds(cause.organisation, cause.node, now, looks_slow=looks_slow)

    def _compute_remaining(self, this: Round, node: str) -> float:
        """Seconds that the next order of a round may take on a node."""
        used = sum(span.seconds for span in this.spans if span.looked_slow is this.looks_slow)
        left = self._seconds(this.cause, this.looks_slow) - used
        return left if node == this.cause.node else min(left, self._budgets.peer_seconds(node, self._clock.steady()))

    async def _all_seen_idle(self, nodes: Sequence[str]) -> bool:
        """Whether the agents of all these nodes that are connected see them idle."""
        return all(await asyncio.gather(*(self._sees_idle(node) for node in nodes if self._fleet.is_connected(node))))

    async def _sees_idle(self, node: str) -> bool:
        if self._is_occupied(node):
            return False
        if self._clock.steady() - self._seen_idle_at.get(node, float("-inf")) < SEEN_IDLE_SECONDS:
            return True
        if not await self._fleet.look(node):
            self._note_occupied(node)
            return False
        self._seen_idle_at[node] = self._clock.steady()
        if node in self._watched.list_lost_nodes():
            await self._store.runs.put_seen_empty(node)
            self._watched.note_empty(node)
        return True

    def _is_occupied(self, node: str) -> bool:
        return self._clock.steady() < self._occupied_until.get(node, 0.0)

    def _is_shared(self, node: str) -> bool:
        return self._clock.steady() < self._shared_until.get(node, 0.0)

    def _note_occupied(self, node: str) -> None:
        log.info("node %s is in use, or its agent does not say; it is left alone for %g s", node, OCCUPIED_SECONDS)
        self._occupied_until[node] = self._clock.steady() + OCCUPIED_SECONDS

    async def _count(self, this: Round) -> None:
        orders = this.orders()
        now, wall = self._clock.steady(), self._clock.wall()
        self._budgets.restore(orders, wall, now)
        await self._store.orders.append_orders(orders)


def _without_start(seconds: float, results: Sequence[BenchmarkResult]) -> float:
    """What counts of the seconds that an order took: an agent may have had to start what measures, which it does slowly
    and once in a day (ADR 44). Counted, one start would use up the allowance of hours."""
    measured = sum(max(0.0, result.ended_at - result.started_at) for result in results)
    return min(seconds, measured) if measured > 0 and seconds - measured < SLOW_START_SECONDS else seconds


@dataclass(frozen=True)
class _Span:
    """One order that was sent: to which node, when it ended (unix seconds), and how long it took."""

    node: str
    ended_at: float
    seconds: float
    looked_slow: bool
    """Whether the round looked slow when it was sent."""


@dataclass
class Round:
    """The orders of one cause."""

    _orders: Orders
    cause: Cause
    looks_slow: bool
    """Whether it has looked slow so far; set it as soon as it does."""
    found: Found = Found.NOTHING
    """What the round has shown; set it before the round ends."""
    spans: list[_Span] = field(default_factory=list)

    async def measure(self, node: str, run: Run | None) -> list[BenchmarkResult]:
        """Micro-benchmarks on a node, beside a run or while it is idle. Raises NotReady with the reason."""
        return await self._orders.send(self, node, run)

    def orders(self) -> list[MeasuredOrder]:
        """What is counted and stored. What was found stands in the last order, so that it counts once."""
        cause, last = self.cause, self.spans[-1]
        return [
            MeasuredOrder(
                organisation=cause.organisation,
                suspected=cause.node,
                node=span.node,
                purpose=cause.purpose,
                began_at=span.ended_at - span.seconds,
                ended_at=span.ended_at,
                looked_slow=span.looked_slow,
                found=self.found if span is last else Found.NOTHING,
            )
            for span in self.spans
        ]
