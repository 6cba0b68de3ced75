"""The node's local socket: a ticket for a run, the profile to start under, and the state of the node."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_protocol.files import write_atomically
from pharoah_protocol.local_messages import (
    Failure,
    Message,
    MessageError,
    NodeStateAnswer,
    NodeStateRequest,
    TicketAnswer,
    TicketRequest,
    decode,
    encode,
)
from pharoah_protocol.node_ticket import Ticket


def load_key(path: Path) -> Ed25519PrivateKey:
    """The node's ticket key; made, owner-only, on first start."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, Ed25519PrivateKey.generate().private_bytes_raw(), durable=True)
    return Ed25519PrivateKey.from_private_bytes(path.read_bytes())


@asynccontextmanager
async def ticket_socket(
    path: Path,
    node: str,
    boot_id: str,
    key: Ed25519PrivateKey,
    profile: Mapping[str, Any],
    node_state: Callable[[], NodeStateAnswer],
) -> AsyncIterator[None]:
    """Serve tickets and the state of the node while inside. The socket is open to every local user: jobs are theirs."""

    def answered(line: bytes) -> Message:
        try:
            request = decode(line).message
        except MessageError as error:
            return Failure(str(error))
        if isinstance(request, NodeStateRequest):
            return node_state()
        if not isinstance(request, TicketRequest):
            return Failure(f"verb {request.VERB!r} is not one that an agent answers")
        body, signature = Ticket.issue(node, boot_id, key, time.time())
        return TicketAnswer(body.decode(), signature.hex(), dict(profile))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(5):
                writer.write(encode(answered(await reader.readline())) + b"\n")
                await writer.drain()
        writer.close()

    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(serve, str(path), limit=4096)
    path.chmod(0o666)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)
