"""A server that reads what a gRPC client really sends: the headers of each call, decoded from the bytes of HTTP/2.

It speaks as much of RFC 9113 and RFC 7541 as one client needs: it allows no dynamic table, so that every header is a
literal or an entry of the static table, and it answers every call with the status UNIMPLEMENTED.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.harness.sockets import socket_folder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS, PING = 0x1, 0x4, 0x6
ACK, END_STREAM, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
NO_DYNAMIC_TABLE = struct.pack(">HI", 0x1, 0)
"""SETTINGS_HEADER_TABLE_SIZE = 0."""
STATIC = """:authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200
:status 204|:status 206|:status 304|:status 400|:status 404|:status 500|accept-charset|accept-encoding gzip, deflate
accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization|cache-control|content-disposition
content-encoding|content-language|content-length|content-location|content-range|content-type|cookie|date|etag|expect
expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|link|location
max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|server|set-cookie
strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate""".replace("\n", "|").split("|")
"""RFC 7541, appendix A: names, some with a value after a space; the first has the index 1."""


@dataclass
class HeaderRecorder:
    """Where it listens, and the headers of every call, in the order in which they came."""

    endpoint: str = ""
    calls: list[dict[str, str]] = field(default_factory=list)


@asynccontextmanager
async def header_recorder() -> AsyncIterator[HeaderRecorder]:
    """A recording server on a Unix socket, which ends with the context."""
    recorder = HeaderRecorder()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            assert await reader.readexactly(len(PREFACE)) == PREFACE
            writer.write(frame(SETTINGS, 0, 0, NO_DYNAMIC_TABLE))
            while True:
                await _answer(recorder, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    with socket_folder() as folder:
        server = await asyncio.start_unix_server(connection, folder / "p.sock")
        recorder.endpoint = f"unix:{folder}/p.sock"
        try:
            yield recorder
        finally:
            server.close()


async def _answer(recorder: HeaderRecorder, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readexactly(9)
    length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
    stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
    payload = await reader.readexactly(length)
    if kind == SETTINGS and not flags & ACK:
        writer.write(frame(SETTINGS, ACK, 0, b""))
    elif kind == PING and not flags & ACK:
        writer.write(frame(PING, ACK, 0, payload))
    elif kind == HEADERS:
        assert flags & END_HEADERS and not flags & (PADDED | PRIORITY), "gRPC's client sends headers in one plain frame"
        recorder.calls.append(decode(payload))
        block = b"\x88" + literal("content-type", "application/grpc") + literal("grpc-status", "12")
        writer.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, block))


def decode(block: bytes) -> dict[str, str]:
    """Name to value of a header block without a dynamic table. Raises ValueError for what it does not read."""
    headers, at = {}, 0
    while at < len(block):
        first = block[at]
        if first & 0x80:
            index, at = _integer(block, at, 7)
            name, _, value = STATIC[index - 1].partition(" ")
            headers[name] = value
        elif first & 0xE0 == 0x20:  # the size of the dynamic table
            _, at = _integer(block, at, 5)
        else:
            index, at = _integer(block, at, 6 if first & 0x40 else 4)
            name = STATIC[index - 1].partition(" ")[0]
            if not index:
                name, at = _string(block, at)
            headers[name], at = _string(block, at)
    return headers


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """RFC 7541, section 5.1: the number, and where the next part begins."""
    value = block[at] & (1 << bits) - 1
    at += 1
    if value < (1 << bits) - 1:
        return value, at
    shift = 0
    while True:
        value += (block[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not block[at - 1] & 0x80:
            return value, at


def _string(block: bytes, at: int) -> tuple[str, int]:
    if block[at] & 0x80:
        raise ValueError("a string in the code of Huffman, which this reader does not know")
    length, at = _integer(block, at, 7)
    return block[at : at + length].decode(), at + length


def literal(name: str, value: str) -> bytes:
    """A header without indexing (RFC 7541, section 6.2.2); its parts have less than 127 bytes each."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
