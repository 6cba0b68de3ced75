"""The load generator: jobs that report and agents that send telemetry, with the time until each is acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc.aio

from evaluation.ingest.site import RANKS, IngestSite, run_id
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import AgentMessage, Hello, ReportRequest, Telemetry
from pharoah_serving.listener import STREAMS_OF_A_CONNECTION

CALL_SECONDS = 20.0
TELEMETRY_SECONDS = 2.0
"""How often an agent sends telemetry (`services.agent.TELEMETRY_PERIOD_SECONDS`)."""
SIGNALS = ("memory_stalled", "gpu_throttled", "gpu_uncorrected_errors", "gpu_rows_to_remap")
"""One reading of each signal that leaves a node with one GPU (`pharoah_provider.agent.signals`)."""
PAUSE_SECONDS = 0.05
"""Before a call that failed is made again."""


@dataclass
class Job:
    """One run, as its sidecar counts it."""

    number: int
    began_at: float
    next_second: int = 0

    def request(self, seconds: int, restless: bool) -> ReportRequest:
        """The next seconds. Healthy ranks report level 0; those of a restless job another level in every second."""
        first = self.next_second
        levels = [(second % 5 + 1 if restless else 0) for second in range(first, first + seconds) for _ in range(RANKS)]
        return ReportRequest(
            run_id=run_id(self.number), attempt=1, first_second=first, first_ended_at=self.began_at + first + 1,
            step_levels=levels, memory_levels=[0] * len(levels),
        )  # fmt: skip


@dataclass
class Taken:
    """What was acknowledged."""

    seconds: list[float] = field(default_factory=list)
    """How long each report or batch took, from when it was first due until it was acknowledged."""
    rows: int = 0
    failed: int = 0
    """Calls or streams that failed. What was sent in them was sent again."""

    def quantile(self, share: float) -> float:
        """Seconds within which so large a share of the calls was acknowledged."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


@dataclass
class Jobs:
    """All jobs of a site. Each organisation has one connection and some calls on it at once."""

    site: IngestSite
    calls_at_once: int
    """How many one organisation has under way."""
    clock: Callable[[], float] = time.monotonic
    jobs: list[Job] = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = [Job(number, self.site.began_at) for number in range(self.site.size.runs)]

    async def report(
        self,
        until: Callable[[], bool],
        seconds: int,
        *,
        restless: bool = False,
        per_second: float = 0.0,
        noted: Callable[[float], None] = lambda _: None,
    ) -> Taken:
        """Let the jobs report in turn until `until()`, `seconds` of each in one report. A report that fails is sent
        again, and its time goes on. `per_second`: reports of all jobs together; 0 for as many as are acknowledged.
        `noted` is called for each one that is acknowledged, with the monotonic time at which its last call began."""
        taken, size = Taken(), self.site.size
        period = size.organisations * self.calls_at_once / per_second if per_second else 0.0
        async with AsyncExitStack() as stack:
            workers = []
            for number in range(size.organisations):
                caller = size.organisation(number)
                channel = await stack.enter_async_context(self.site.channel(caller))
                call = partial(Stub(channel, "Runs").Report, metadata=self.site.site.access(caller).metadata)
                worker = _Worker(self.clock, call, taken, noted, until)
                queue = deque(self.jobs[number :: size.organisations])
                for at in range(self.calls_at_once):
                    pause = period * at / self.calls_at_once
                    workers.append(worker.work(queue, seconds, restless, pause, period))
            await asyncio.gather(*workers)
        return taken


@dataclass(frozen=True)
class _Worker:
    """Reports of one organisation, on its connection."""

    clock: Callable[[], float]
    call: Callable[..., Any]
    taken: Taken
    noted: Callable[[float], None]
    until: Callable[[], bool]

    async def work(self, queue: deque[Job], seconds: int, restless: bool, pause: float, period: float) -> None:
        """Report for one job after the other, first after a pause: one in each period, or as soon as the last one is
        acknowledged."""
        due = self.clock() + pause
        while not self.until():
            if period:
                await asyncio.sleep(max(0.0, due - self.clock()))
            job = queue.popleft()
            await self._report(job, seconds, restless, due if period else self.clock())
            queue.append(job)
            due += period

    async def _report(self, job: Job, seconds: int, restless: bool, due: float) -> None:
        """Send one report again until it is acknowledged. Its time begins when it was due, not with its last call."""
        while True:
            called = self.clock()
            try:
                await self.call(job.request(seconds, restless), timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError:
                self.taken.failed += 1
                await asyncio.sleep(PAUSE_SECONDS)
                if self.until():
                    return
            else:
                self.taken.seconds.append(self.clock() - due)
                self.taken.rows += seconds * RANKS
                job.next_second += seconds
                self.noted(called)
                return


@dataclass
class Agents:
    """Agents of all nodes: each sends a batch every two seconds, keeps it until it is acknowledged, and connects again
    when its stream ends, as the real one does (`agent.stream`)."""

    site: IngestSite
    taken: Taken = field(default_factory=Taken)
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Node to its newest batch that was acknowledged."""

    async def send(self, over: asyncio.Event) -> None:
        """Until `over` is set."""
        size = self.site.size
        async with AsyncExitStack() as stack:
            work = []
            for first in range(0, size.nodes, STREAMS_OF_A_CONNECTION):
                channel = await stack.enter_async_context(self.site.channel(f"agent/{size.node(first)}"))
                last = min(size.nodes, first + STREAMS_OF_A_CONNECTION)
                work += [self._agent(channel, number, over) for number in range(first, last)]
            await asyncio.gather(*work)

    async def _agent(self, channel: grpc.aio.Channel, number: int, over: asyncio.Event) -> None:
        node, kept = self.site.size.node(number), deque[_Batch]()
        numbers = itertools.count(1)
        await _wait(over, TELEMETRY_SECONDS * number / self.site.size.nodes)  # agents do not start at the same moment
        while not over.is_set():
            with suppress(grpc.aio.AioRpcError):
                await self._connected(channel, node, number, kept, numbers, over)
            await _wait(over, PAUSE_SECONDS)

    async def _connected(
        self,
        channel: grpc.aio.Channel,
        node: str,
        number: int,
        kept: deque[_Batch],
        numbers: Iterable[int],
        over: asyncio.Event,
    ) -> None:
        metadata = self.site.site.access(f"agent/{node}").metadata

        out: asyncio.Queue[AgentMessage | None] = asyncio.Queue()
        for batch in kept:
            out.put_nowait(AgentMessage(telemetry=batch.message))

        async def sample() -> None:
            for batch_number in numbers:
                batch = _Batch.of(batch_number)
                kept.append(batch)
                out.put_nowait(AgentMessage(telemetry=batch.message))
                await asyncio.sleep(TELEMETRY_SECONDS)

        call = Stub(channel, "Agent").Connect(_messages(node, number, out), metadata=metadata)
        ending = asyncio.create_task(_ended(over, call))
        sampling: asyncio.Task[None] | None = None
        try:
            async for order in call:
                if order.WhichOneof("content") == "welcome":
                    sampling = asyncio.create_task(sample())
                if order.WhichOneof("content") == "ack":
                    while kept and kept[0].message.batch <= order.ack.batch:
                        batch = kept.popleft()
                        self.taken.seconds.append(time.monotonic() - batch.sent_at)
                        self.taken.rows += len(batch.message.value)
                    self.acknowledged[node] = order.ack.batch
        except grpc.aio.AioRpcError:
            self.taken.failed += 1
            raise
        except asyncio.CancelledError:
            if not over.is_set():
                raise
        finally:
            # No batch is made for a connection that has ended: it would be sent on none.
            tasks = [ending, *([sampling] if sampling else [])]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            out.put_nowait(None)
            call.cancel()


async def _messages(node: str, number: int, out: asyncio.Queue[AgentMessage | None]) -> AsyncIterator[AgentMessage]:
    """What an agent sends on one connection."""
    hello = Hello(
        node=node, ticket_key=number.to_bytes(32, "big"), boot_id="boot", server_facts=["device=cpu"],
        device_facts=["device=cpu"], cpus=[0], host=f"host of {node}",
    )  # fmt: skip
    yield AgentMessage(hello=hello)
    while (message := await out.get()) is not None:
        yield message


async def _ended(over: asyncio.Event, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
    """End a stream when the load is over."""
    await over.wait()
    call.cancel()


@dataclass(frozen=True)
class _Batch:
    message: Telemetry
    sent_at: float

    @classmethod
    def of(cls, number: int) -> _Batch:
        """Readings whose value is the number of their batch, so that each can be found again."""
        now, size = time.time(), len(SIGNALS)
        message = Telemetry(
            batch=number, sampled_at=[now] * size, metric=SIGNALS, device=[""] * size, value=[float(number)] * size
        )
        return cls(message, time.monotonic())


async def _wait(over: asyncio.Event, seconds: float) -> None:
    """Wait, at most until it is over."""
    with suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), seconds)
