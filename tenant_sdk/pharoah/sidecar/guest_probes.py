"""Micro-benchmarks that the provider orders from this sidecar, where the agent of the node is not connected.

An order must be signed by the provider, for this run, in time, once, within what the tenant allows, and never beside
another one. Its result leaves at a fixed fraction of a second, signed with a key that was made for this run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from random import Random
from typing import Any

import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah._settings import Settings
from pharoah.local_alerts._readings import read_machine
from pharoah.sidecar import guest_child
from pharoah.sidecar.guest_limits import HourlyBudget, refusal, takes_orders
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_protocol.backoff import Backoff
from pharoah_protocol.guest_probes import GuestOrder, GuestProbeError, GuestResult
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import SendProbeResultRequest, WatchOrdersRequest
from pharoah_protocol.vocabulary import ProbeStatus

log = logging.getLogger("pharoah.sidecar")

FIRST_WATCH_SECONDS = 2.0
"""How long after the run has joined orders are watched for: there are none before a run has settled."""
RESULT_OFFSET_SECONDS = 0.85
"""A result leaves so long after a second of the run has ended: no report and no late question is prepared or sent then
(`run_reporter.REPORT_OFFSET_SECONDS` and `MAX_DELAY_SECONDS`)."""
START_SECONDS = 45.0
"""How long the child may take to start Python and torch, at a low priority beside a job; less than the provider waits
for it (`guest_orders.START_SECONDS`)."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 2.0, 15.0
"""Pauses between two streams; a provider that restarts is away for seconds."""
MESSAGES_AT_ONCE, MESSAGE_SECONDS = 64, 1.0
"""The first messages are looked at as they come, later ones one per second: to verify one takes a tenth of a
millisecond, and a provider must not take this machine's time."""
REMEMBERED_ORDERS = 1024

Measure = Callable[[GuestOrder, float], Awaitable[GuestResult]]
"""Does an order within so many seconds."""


class GuestProbes:
    """Owns a task that watches for orders, and one that does the present order, between `start` and `stop`."""

    def __init__(
        self,
        provider: ProviderConnection,
        run_id: bytes,
        settings: Settings,
        join_time: float,
        measure: Measure = guest_child.done,
        random: Random | None = None,
    ) -> None:
        """`join_time` is when the run joins, in monotonic seconds."""
        self._provider, self._run_id, self._settings, self._join_time = provider, run_id, settings, join_time
        self._stub, self._measure, self._random = Stub(provider.channel, "Runs"), measure, random
        self._key = Ed25519PrivateKey.generate() if takes_orders(settings) else None
        self._budget = HourlyBudget(settings.guest_probe_seconds)
        self._watching: asyncio.Task[None] | None = None
        self._present: GuestOrder | None = None
        """The order that is being done. While its result is on its way, the next one may come."""
        self._doing: asyncio.Task[None] | None = None
        """Does the present order, or has done the last one."""
        self._tasks: set[asyncio.Task[None]] = set()
        """The present order, and results on their way."""
        self._seen: deque[bytes] = deque(maxlen=REMEMBERED_ORDERS)
        """Challenges of the newest orders: none is done twice."""

    @property
    def public_key(self) -> bytes:
        """The key that the run announces when it joins; empty when the tenant has not agreed."""
        return self._key.public_key().public_bytes_raw() if self._key else b""

    @property
    def measuring(self) -> bool:
        """Whether a micro-benchmark runs beside the job."""
        return self._present is not None

    def start(self) -> None:
        """Watch for orders from now on, if the tenant has agreed."""
        if self._key is not None:
            self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """End what goes on, the child included. Nothing is sent any more."""
        if self._watching:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self) -> None:
        await asyncio.sleep(max(0.0, self._join_time + FIRST_WATCH_SECONDS - time.monotonic()))
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, self._random)
        messages = 0
        while True:
            try:
                with suppress(grpc.aio.AioRpcError):
                    request = WatchOrdersRequest(run_id=self._run_id)
                    async for message in self._stub.WatchOrders(request, metadata=self._provider.metadata):
                        backoff.reset()
                        await self._receive(message)
                        messages += 1
                        if messages > MESSAGES_AT_ONCE:
                            await asyncio.sleep(MESSAGE_SECONDS)
            finally:
                await self._stop_present()  # nobody waits for its result any more
            await asyncio.sleep(backoff.next_pause())

    async def _receive(self, message: Any) -> None:
        match message.WhichOneof("content"):
            case "probe":
                self._begin(message.probe.body, message.probe.signature)
            case "stop":
                if self._present is not None and self._present.order_id == message.stop:
                    await self._stop_present()

    def _begin(self, body: bytes, signature: bytes) -> None:
        """Do an order, unless it is none for us. Whoever has sent something else gets no answer."""
        try:
            order = GuestOrder.verify(body, signature, self._provider.key)
        except GuestProbeError as error:
            log.warning("an order of the provider is not done: %s", error)
            return
        if order.run_id != self._run_id or order.challenge in self._seen:
            log.warning("an order of the provider is not done: it is for another run, or came before")
        elif self._present is not None:
            log.warning("an order of the provider is not done: there is another one")
        else:
            self._seen.append(order.challenge)
            self._present, task = order, asyncio.create_task(self._do(order))
            self._doing = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _stop_present(self) -> None:
        if self._present is not None and self._doing is not None:
            self._doing.cancel()
            await asyncio.gather(self._doing, return_exceptions=True)
            self._present = None

    async def _do(self, order: GuestOrder) -> None:
        """Do an order, or refuse it, and send what came of it."""
        try:
            result = await self._result(order)
        finally:
            self._present = None
        await asyncio.sleep(self._until_result())
        assert self._key is not None
        request = SendProbeResultRequest(
            run_id=self._run_id, body=result.encode(), signature=result.make_signature(self._key)
        )
        try:
            await self._provider.call(self._stub.SendProbeResult, request)
        except grpc.aio.AioRpcError as error:
            log.info("the provider did not take the result of a micro-benchmark: %s", error.details())

    async def _result(self, order: GuestOrder) -> GuestResult:
        """What came of an order. The budget is what the child takes from its start to its end, and never more."""
        why_not = refusal(order, self._settings, self._budget.get_remaining(), await _free_bytes(), time.time())
        if why_not:
            log.info("an order of the provider is refused: %s", why_not)
            return GuestResult(order=order, status=ProbeStatus.REFUSED)
        began = time.monotonic()
        try:
            return await self._measure(order, min(order.longest_seconds + START_SECONDS, self._budget.get_remaining()))
        except OSError as error:
            log.warning("a micro-benchmark could not be started: %s", error)
            return GuestResult(order=order, status=ProbeStatus.FAILED)
        finally:
            self._budget.use(began)

    def _until_result(self) -> float:
        """Seconds until a result may leave."""
        return 1.0 - (time.monotonic() - self._join_time - RESULT_OFFSET_SECONDS) % 1.0


async def _free_bytes() -> int | None:
    """Memory that this machine and the job's control group have left; None where that is not known."""
    machine = await asyncio.to_thread(read_machine, os.getpid(), ())
    known = (machine.available_bytes, machine.group_free_bytes)
    least = min((inf if one is None else one for one in known), default=inf)
    return None if least == inf else int(least)
