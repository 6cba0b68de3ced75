"""Runs whose sidecars take orders for micro-benchmarks, over real gRPC: what a sidecar sends, sound or forged."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_protocol.guest_probes import GuestOrder, GuestResult
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import Consent, EndRunRequest, EndState, SendProbeResultRequest, WatchOrdersRequest
from pharoah_protocol.vocabulary import ProbeStatus
from tests.harness.loopback import Loopback, bearer
from tests.harness.runs import join, report

LIMIT_SECONDS = 2.0
"""Consent of these runs."""
ORDER_SECONDS, PAUSE_SECONDS = 20.0, 0.1
"""How long an order may take to come, and between two reports."""
ACCEPTED, NO_SUCH_RUN, TOO_MANY = "accepted", "no such run", "too many"
_REASON = "the result is rejected: "


def honest_seconds(benchmark: str) -> float:
    """The time of a repeat on the nodes of these runs: a little more than the fastest core takes."""
    return 1.5 * MICRO_BENCHMARKS[benchmark].fastest_seconds


@dataclass
class GuestRun:
    """One run, and the sidecar that a test plays."""

    site: Loopback
    node: str
    who: str
    key: Ed25519PrivateKey
    run_id: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    orders: asyncio.Queue[GuestOrder] = field(default_factory=asyncio.Queue)
    stopped: list[bytes] = field(default_factory=list)
    """Numbers of orders that the provider has stopped."""
    answered: int = 0
    """Results that were accepted."""
    _reported: int = 0

    async def report(self, ratio: float = 1.0) -> None:
        """One more second, at this ratio of the run's baseline."""
        await self.site.call("Runs", "Report", report(self.run_id, self._reported, ratio), self.who)
        self._reported += 1

    async def next_order(self) -> GuestOrder:
        """The next order; the run reports calm seconds until one comes. Raises TimeoutError."""
        async with asyncio.timeout(ORDER_SECONDS):
            while True:
                await self.report()
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_SECONDS):
                        return await self.orders.get()

    def honest(self, order: GuestOrder) -> GuestResult:
        """What a node could show."""
        seconds = (honest_seconds(order.benchmark),)
        return GuestResult(order=order, status=ProbeStatus.MEASURED, seconds=seconds)

    async def send(self, result: GuestResult, key: Ed25519PrivateKey | None = None) -> str:
        """Send a result, signed with the key of the run or another one: `accepted`, or why not."""
        return await self.send_bytes(result.encode(), result.make_signature(key or self.key))

    async def send_bytes(self, body: bytes, signature: bytes, run_id: bytes = b"", who: str = "") -> str:
        """The same with any content, for any run, as anybody."""
        request = SendProbeResultRequest(run_id=run_id or self.run_id, body=body, signature=signature)
        try:
            await self.site.call("Runs", "SendProbeResult", request, who or self.who)
        except grpc.aio.AioRpcError as error:
            details = error.details() or ""
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return NO_SUCH_RUN
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                return TOO_MANY
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT and _REASON in details, details
            return details.partition(_REASON)[2]
        self.answered += 1
        return ACCEPTED

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Receive orders while inside."""
        async with self.site.connection() as channel:
            task = asyncio.create_task(self._watch(channel))
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _watch(self, channel: grpc.aio.Channel) -> None:
        calls = Stub(channel, "Runs").WatchOrders(WatchOrdersRequest(run_id=self.run_id), metadata=bearer(self.who))
        async for message in calls:
            if message.WhichOneof("content") == "stop":
                self.stopped.append(message.stop)
            else:
                self.orders.put_nowait(GuestOrder.decode(message.probe.body))

    async def end(self) -> None:
        """The run ends in order."""
        await self.site.call("Runs", "EndRun", EndRunRequest(run_id=self.run_id, state=EndState.END_STATE_OK), self.who)


async def joined(site: Loopback, node: str = "n1", who: str = "acme", **changes: Any) -> GuestRun:
    """A run that has joined. `changes` are fields of its consent."""
    run = GuestRun(site, node, who, Ed25519PrivateKey.generate())
    consent = {
        "beside_job": True,
        "limit_seconds": LIMIT_SECONDS,
        "probe_key": run.key.public_key().public_bytes_raw(),
    }
    await join(site, node, who, run.run_id, consent=Consent(**{**consent, **changes}))
    return run


@asynccontextmanager
async def guest_run(site: Loopback, node: str = "n1", who: str = "acme", **changes: Any) -> AsyncIterator[GuestRun]:
    """A run that has joined and watches for orders, and that ends in the end."""
    run = await joined(site, node, who, **changes)
    async with run.watching():
        yield run
        with suppress(grpc.aio.AioRpcError):  # it has ended already
            await run.end()
