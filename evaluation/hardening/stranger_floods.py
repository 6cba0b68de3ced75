"""What strangers can do to a provider at their worst, one coroutine per way.

The provider serves TLS only. A stranger without a certificate gets no further than the handshake, and floods that. A
stranger whose certificate is on the deny list gets through the handshake, and calls.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

from evaluation.hardening.flood_target import Target, in_parallel, side_by_side
from tests.harness.http2_headers import ACK, END_HEADERS, HEADERS, PING, PREFACE, SETTINGS, frame, literal

RST_STREAM = 0x3
CANCEL = (8).to_bytes(4, "big")
SILENT_CONNECTIONS = 2000
HANDSHAKES_AT_ONCE = 64
METRICS_READERS = 200
RESETTING_CONNECTIONS = 4


async def _silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def streams_of_nobody(target: Target) -> None:
    """Streams of an unknown caller that send nothing, as the attack on server reflection did."""
    path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    await in_parallel(
        target, lambda channel: lambda: channel.stream_stream(path, None, None)(_silence(), timeout=20).read()
    )


async def health_flood(target: Target) -> None:
    """Questions of health, as fast as they are answered."""
    await in_parallel(
        target, lambda channel: lambda: channel.unary_unary("/grpc.health.v1.Health/Check", None, None)(b"")
    )


async def unknown_methods(target: Target) -> None:
    """Calls of methods that do not exist, and of real ones by an unknown caller."""
    paths = ("/no.such.Service/Method", "/pharoah.v1.Exchange/GetEpoch")
    await in_parallel(
        target, lambda channel: lambda: channel.unary_unary(secrets.choice(paths), None, None)(b"", timeout=5)
    )


async def handshakes(target: Target) -> None:
    """Handshakes without a certificate, as fast as they are refused."""
    tls = target.tls_of_nobody()

    async def one() -> None:
        reader, writer = await target.raw(tls)
        try:
            await reader.read()  # with TLS 1.3 the refusal comes after the client has done its own part
        finally:
            writer.close()

    await side_by_side(HANDSHAKES_AT_ONCE, one)


async def handshakes_never_begun(target: Target) -> None:
    """Thousands of connections that send nothing at all, and open again when they are closed."""

    async def one() -> None:
        reader, writer = await target.raw(None)
        try:
            await reader.read()
        finally:
            writer.close()

    await side_by_side(SILENT_CONNECTIONS, one)


async def silent_connections(target: Target) -> None:
    """Thousands of connections that send a preface and then nothing."""
    tls = target.tls()

    async def one() -> None:
        reader, writer = await target.raw(tls)
        writer.write(PREFACE + frame(SETTINGS, 0, 0, b""))
        try:
            while await reader.read(4096):
                pass
        finally:
            writer.close()

    await side_by_side(SILENT_CONNECTIONS, one)


async def slow_readers_of_metrics(target: Target) -> None:
    """Hundreds of connections to /metrics that send a byte a second, and open again when they are closed."""

    async def one() -> None:
        _, writer = await target.raw_metrics()
        try:
            for byte in b"GET /metrics HTTP/1.1\r\n" * 100:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(1)
        finally:
            writer.close()

    await side_by_side(METRICS_READERS, one)


async def rapid_reset(target: Target) -> None:
    """Calls that are opened and cancelled in one write, on a few connections; a closed one is opened again."""
    tls = target.tls()

    async def one() -> None:
        reader, writer = await target.raw(tls)
        answering = asyncio.create_task(_answer_pings(reader, writer))
        try:
            writer.write(PREFACE + frame(SETTINGS, 0, 0, b""))
            for stream in range(1, 1 << 30, 200):
                writer.write(b"".join(_opened_and_cancelled(at) for at in range(stream, stream + 200, 2)))
                await writer.drain()
                if answering.done():
                    return
                await asyncio.sleep(0.01)  # 10,000 calls a second on each connection
        finally:
            answering.cancel()
            writer.close()

    await side_by_side(RESETTING_CONNECTIONS, one)


async def _answer_pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Acknowledge settings and pings, as a live connection does; ends with the connection."""
    while True:
        head = await reader.readexactly(9)
        payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
        if head[3] in (SETTINGS, PING) and not head[4] & ACK:
            writer.write(frame(head[3], ACK, 0, payload if head[3] == PING else b""))


def _opened_and_cancelled(stream: int) -> bytes:
    headers = {
        ":method": "POST",
        ":scheme": "https",
        ":path": "/pharoah.v1.Exchange/GetEpoch",
        ":authority": "provider",
        "te": "trailers",
        "content-type": "application/grpc",
        "grpc-timeout": "5S",
    }
    block = b"".join(literal(name, value) for name, value in headers.items())
    return frame(HEADERS, END_HEADERS, stream, block) + frame(RST_STREAM, 0, stream, CANCEL)


STRANGER = (
    streams_of_nobody, health_flood, unknown_methods, handshakes, handshakes_never_begun, silent_connections,
    slow_readers_of_metrics, rapid_reset,
)  # fmt: skip
