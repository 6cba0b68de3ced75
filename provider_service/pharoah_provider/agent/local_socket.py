"""The node's local socket: a ticket for a run, the profile to start under, the state of the node, and its signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_protocol.agent_messages import (
    ForecastAnswer,
    ForecastRequest,
    NodeStateAnswer,
    NodeStateRequest,
    SignalsAnswer,
    SignalsRequest,
    TicketAnswer,
    TicketRequest,
)
from pharoah_protocol.local_messages import Message, MessageError, decode, encode
from pharoah_protocol.node_profile import NodeProfile
from pharoah_protocol.node_ticket import Ticket
from pharoah_protocol.rank_messages import Failure
from pharoah_provider.agent.known_jobs import KnownJobs
from pharoah_provider.agent.open_connections import OpenConnections
from pharoah_serving.errors import ProviderError
from pharoah_system.files import write_atomically
from pharoah_system.local_sockets import EVERYBODY, LocalSocketError, ServedSocket, peer_credentials
from pharoah_system.trusted_paths import UntrustedPathError, make_folder, private_content

MAX_REQUEST_BYTES = 4096
REQUEST_SECONDS = 5.0
"""How long one connection may take; both ends are on this machine."""


def load_key(path: Path) -> Ed25519PrivateKey:
    """The node's ticket key; made on the first start. Raises ProviderError for a file that others can read or write."""
    try:
        if not path.exists():
            make_folder(path.parent)
            write_atomically(path, Ed25519PrivateKey.generate().private_bytes_raw(), durable=True)
        return Ed25519PrivateKey.from_private_bytes(private_content(path))
    except UntrustedPathError as error:
        raise ProviderError(f"ticket key {error}") from None
    except OSError as error:
        raise ProviderError(f"ticket key {path}: {error.strerror}") from None
    except ValueError:
        raise ProviderError(f"ticket key {path}: not an Ed25519 key; restore it, or remove it for a new one") from None


async def _no_signals(_: socket.socket) -> SignalsAnswer:
    return SignalsAnswer()


async def _no_forecast(_: socket.socket) -> ForecastAnswer:
    return ForecastAnswer()


@asynccontextmanager
async def ticket_socket(
    path: Path,
    node: str,
    boot_id: str,
    key: Ed25519PrivateKey,
    profile: NodeProfile,
    node_state: Callable[[], NodeStateAnswer],
    jobs: KnownJobs | None = None,
    signals: Callable[[socket.socket], Awaitable[SignalsAnswer]] = _no_signals,
    forecast: Callable[[socket.socket], Awaitable[ForecastAnswer]] = _no_forecast,
) -> AsyncIterator[None]:
    """Serve tickets and the state of the node while inside. The socket is open to every local user: jobs are theirs. A
    connection for which there is no room (`open_connections`) is closed at once.

    Who asks for a ticket is entered in `jobs`. `signals` gives the signals of the node that the process at the other
    end may see, and `forecast` what it needs to forecast failures of the node.

    Raises ProviderError when another process serves there or others can change the folder.
    """

    async def answer_line(line: bytes, asker: socket.socket) -> Message:
        try:
            request = decode(line).message
        except MessageError as error:
            return Failure(str(error))
        if isinstance(request, NodeStateRequest):
            return node_state()
        if isinstance(request, SignalsRequest):
            return await signals(asker)
        if isinstance(request, ForecastRequest):
            return await forecast(asker)
        if not isinstance(request, TicketRequest):
            return Failure(f"verb {request.VERB!r} is not one that an agent answers")
        if jobs is not None:
            jobs.ask(asker)
        body, signature = Ticket.issue(node, boot_id, key, time.time())
        return TicketAnswer(body.decode(), signature.hex(), profile.to_dict())

    connections = OpenConnections()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asker = writer.get_extra_info("socket")
        try:
            with contextlib.suppress(OSError), connections.enter(peer_credentials(asker).user) as has_room:
                if has_room:
                    await answer(reader, writer, asker)
        finally:
            writer.transport.abort()  # also when nobody takes the answer: it would keep the connection open

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asker: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(REQUEST_SECONDS):
                line = await reader.readline()
                writer.write(encode(await answer_line(line, asker)) + b"\n")
                writer.close()
                await writer.wait_closed()

    with _serve(path) as bound:
        server = await asyncio.start_unix_server(serve, sock=bound, limit=MAX_REQUEST_BYTES)
        try:
            yield
        finally:
            server.close()


@contextlib.contextmanager
def _serve(path: Path) -> Iterator[socket.socket]:
    """A socket that listens at `path`, as the only one. Raises ProviderError."""
    try:
        place = ServedSocket(path, EVERYBODY)
    except (UntrustedPathError, LocalSocketError, OSError) as error:
        raise ProviderError(f"--socket {path}: {error}") from None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
            bound.bind(str(place.scratch))
            bound.listen()
            place.publish()
            yield bound
    finally:
        place.close()
