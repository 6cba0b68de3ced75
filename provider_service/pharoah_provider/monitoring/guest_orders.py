"""Guest probes: micro-benchmarks ordered from the sidecar of a run, where the agent of its node is not connected.

Monitoring asks `ready` and calls `measure` where it would order from an agent; consent and budgets have been asked by
then (`monitoring.orders`). What a sidecar measures is compared with what the same sidecar has measured before, and with
nothing else: it works at a low priority, and its tenant could make numbers up.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_benchmarks.micro import MicroBenchmark
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.guest_probes import (
    CHALLENGE_BYTES,
    ID_BYTES,
    MAX_DUTY_THOUSANDTHS,
    MAX_LIFE_SECONDS,
    MAX_LIMIT_MILLISECONDS,
    MAX_NAME_LENGTH,
    MAX_REPEATS,
    GuestOrder,
    GuestResult,
)
from pharoah_protocol.vocabulary import ProbeStatus
from pharoah_provider.domain import Run
from pharoah_provider.fleet import Fleet
from pharoah_provider.micro_benchmarks import benchmarks_of
from pharoah_provider.monitoring.guest_results import GivenOrder, ProbeRejected, check_result, read_result
from pharoah_provider.monitoring.levels import NodeLevels
from pharoah_serving.clock import Clock
from pharoah_serving.errors import NotReady
from pharoah_serving.metrics import Metrics

log = logging.getLogger("pharoah.provider.monitoring")

START_SECONDS = 60.0
"""Time beyond its repeats for one order: a sidecar starts Python and torch for it, at a low priority beside a job."""
PAUSE_SECONDS = 300.0
"""How long a run is left alone whose sidecar did not measure: its tenant's budget is one of an hour."""
KEPT_ORDERS = 4096
"""Orders that are over and still remembered, so that a result for one of them gets its own reason."""
ACCEPTED = "accepted"
"""The label of the metric beside the rejections."""


@dataclass(frozen=True)
class SignedOrder:
    """An order for a sidecar."""

    body: bytes
    signature: bytes


@dataclass(frozen=True)
class StopOrder:
    """Nobody waits any more for the order with this number."""

    order_id: bytes


@dataclass(frozen=True)
class _Open:
    """An order whose result is awaited."""

    given: GivenOrder
    result: asyncio.Future[GuestResult]


_Stream = asyncio.Queue[SignedOrder | StopOrder | None]
"""What goes to a sidecar; None ends it."""


class GuestOrders:
    """The sidecars that take orders, and the orders that they were given. Belongs to the event loop."""

    def __init__(self, fleet: Fleet, metrics: Metrics, clock: Clock, key: Ed25519PrivateKey | None = None) -> None:
        """`key` signs orders; without one, there are none."""
        self._fleet, self._metrics, self._clock, self._key = fleet, metrics, clock, key
        self._levels = NodeLevels()
        self._streams: dict[bytes, _Stream] = {}
        self._open: dict[bytes, _Open] = {}
        self._over: OrderedDict[bytes, GivenOrder] = OrderedDict()
        """By number of the order; the newest are last."""
        self._paused_until: dict[bytes, float] = {}
        """By run; seconds of the steady clock."""

    def use(self, levels: NodeLevels) -> None:
        """The levels that must know whether an agent or a sidecar has measured them."""
        self._levels = levels

    def ready(self, run: Run | None, organisation: str) -> bool:
        """Whether the sidecar of this run can be asked now in place of the agent of its node, for an organisation.

        A tenant could make numbers up, so they count for its own organisation only: with those of others, an incident
        would be established that only sidecars have shown, or one that others have raised would be cleared.
        """
        return (
            run is not None
            and run.organisation == organisation
            and self._key is not None
            and bool(run.probe_key)
            and run.run_id in self._streams
            and not self._fleet.is_connected(run.node)
            and self._clock.steady() >= self._paused_until.get(run.run_id, -inf)
        )

    async def measure(
        self,
        run: Run | None,
        organisation: str,
        limit_seconds: float,
        by_agent: Callable[[], Awaitable[list[BenchmarkResult]]],
    ) -> list[BenchmarkResult]:
        """What micro-benchmarks show beside a run, or on an idle node: those of its sidecar, or of `by_agent`.

        `organisation` is for whom they are ordered, `limit_seconds` how long each may take, the sleep included. Raises
        NotReady.
        """
        by_sidecar = self.ready(run, organisation)
        if run is not None and (by_sidecar or self._fleet.is_connected(run.node)):
            self._levels.set_measurer(run, sidecar=by_sidecar)
        if run is None or not by_sidecar:
            return await by_agent()
        with self._fleet.note(run.node):
            return await self._all_of(run, limit_seconds)

    async def orders(self, run: Run) -> AsyncGenerator[SignedOrder | StopOrder, None]:
        """What the sidecar of a run is sent, until the run ends. A second stream of a run replaces the first."""
        self._end_stream(run.run_id)
        stream = self._streams[run.run_id] = _Stream()
        try:
            while (order := await stream.get()) is not None:
                yield order
        finally:
            if self._streams.get(run.run_id) is stream:
                self._end_stream(run.run_id)

    def take_answer(self, run: Run, body: bytes, signature: bytes) -> None:
        """A sidecar has sent a result of this run. Raises ProbeRejected; then nothing has changed."""
        try:
            result = read_result(run, body, signature)
            number = result.order.order_id
            waiting = self._open.get(number)
            if waiting and waiting.result.done():
                waiting.given.given_up = True
            given = waiting.given if waiting else self._over.get(number)
            check_result(result, run, given, self._clock.steady())
        except ProbeRejected as rejected:
            self.count(rejected)
            raise
        self._metrics.probe_results.labels(ACCEPTED).inc()
        if waiting is not None:
            waiting.given.answered = True
            waiting.result.set_result(result)

    def count(self, rejected: ProbeRejected) -> None:
        """A result was rejected."""
        self._metrics.probe_results.labels(rejected.rejection).inc()

    def end_run(self, run_id: bytes) -> None:
        """The run is over."""
        self._end_stream(run_id)
        self._paused_until.pop(run_id, None)

    def end_streams(self) -> None:
        """End all streams, before a restart; sidecars open them again."""
        for run_id in list(self._streams):
            self._end_stream(run_id)

    async def _all_of(self, run: Run, limit_seconds: float) -> list[BenchmarkResult]:
        """One micro-benchmark after another, until one does not come back with times."""
        results: list[BenchmarkResult] = []
        for benchmark in self._benchmarks(run):
            result = await self._one(run, benchmark, limit_seconds)
            results.append(result)
            if result.error:
                log.info("a guest probe beside a run on %s: %s", run.node, result.error)
                self._pause(run)
                break
        if not any(result.seconds for result in results):
            raise NotReady(f"node {run.node}: the sidecar of the run there has measured nothing")
        return results

    def _benchmarks(self, run: Run) -> Sequence[MicroBenchmark]:
        suitable = benchmarks_of(self._fleet, run.node, beside_job=True)
        return [one for one in suitable if one.suits_guests and len(one.name) <= MAX_NAME_LENGTH]

    async def _one(self, run: Run, benchmark: MicroBenchmark, limit_seconds: float) -> BenchmarkResult:
        stream, given = self._streams.get(run.run_id), self._give(run, benchmark, limit_seconds)
        if stream is None or self._key is None:
            raise NotReady(f"node {run.node}: its sidecar went away")
        order = given.order
        waiting = self._open[order.order_id] = _Open(given, asyncio.get_running_loop().create_future())
        stream.put_nowait(SignedOrder(order.encode(), order.make_signature(self._key)))
        began = self._clock.wall()
        try:
            async with asyncio.timeout(given.until - given.given_at):
                result = await waiting.result
        except TimeoutError:
            self._pause(run)
            raise NotReady(f"node {run.node}: its sidecar did not answer in time") from None
        finally:
            self._close(stream, waiting)
        return BenchmarkResult(
            order_id=f"guest-{order.order_id.hex()}",
            node=run.node,
            benchmark=benchmark.name,
            beside_job=True,
            started_at=began,
            ended_at=self._clock.wall(),
            seconds=result.seconds,
            error="" if result.status is ProbeStatus.MEASURED else f"the sidecar answers: {result.status}",
        )

    def _give(self, run: Run, benchmark: MicroBenchmark, limit_seconds: float) -> GivenOrder:
        duty = min(round(1000 * benchmark.duty), MAX_DUTY_THOUSANDTHS)
        takes = min(1000 * benchmark.limit_seconds / duty, limit_seconds, MAX_LIFE_SECONDS - START_SECONDS)
        now, lasts = self._clock.steady(), takes + START_SECONDS
        order = GuestOrder(
            order_id=secrets.token_bytes(ID_BYTES),
            run_id=run.run_id,
            challenge=secrets.token_bytes(CHALLENGE_BYTES),
            benchmark=benchmark.name,
            repeats=min(benchmark.repeats, MAX_REPEATS),
            limit_milliseconds=max(1, min(int(takes * duty), MAX_LIMIT_MILLISECONDS)),
            duty_thousandths=duty,
            expires_at=int(self._clock.wall() + lasts),
        )
        return GivenOrder(order, benchmark, given_at=now, until=now + lasts)

    def _close(self, stream: _Stream, waiting: _Open) -> None:
        """An order is over: answered, or given up, and then its sidecar stops."""
        given = waiting.given
        del self._open[given.order.order_id]
        if not given.answered:
            given.given_up = True
            stream.put_nowait(StopOrder(given.order.order_id))
        self._over[given.order.order_id] = given
        while len(self._over) > KEPT_ORDERS:
            self._over.popitem(last=False)

    def _pause(self, run: Run) -> None:
        self._paused_until[run.run_id] = self._clock.steady() + PAUSE_SECONDS

    def _end_stream(self, run_id: bytes) -> None:
        """The stream of a run ends, and nobody answers its orders any more."""
        if stream := self._streams.pop(run_id, None):
            stream.put_nowait(None)
        for waiting in list(self._open.values()):
            if waiting.given.order.run_id == run_id:
                with suppress(asyncio.InvalidStateError):
                    waiting.result.set_exception(NotReady("the sidecar of the run went away"))
