"""The sidecar's socket: accepts ranks, reads their messages, and passes each to the handler of its class."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Any

from pharoah_protocol.local_messages import MAX_MESSAGE_BYTES, Message, MessageError, decode, encode, wants_answer
from pharoah_protocol.rank_messages import Failure
from pharoah_system.local_sockets import peer_credentials

log = logging.getLogger("pharoah.sidecar")

FIRST_CONNECTION_SECONDS = 60.0
"""How long a sidecar waits for its first connection before it ends."""
ACCEPT_AGAIN_SECONDS = 0.1
"""How long no rank is accepted after the system has refused it; ours."""
BACKLOG = 128
"""Connections that wait to be accepted: several for each rank of a large node at once."""


class ConnectionUse(Enum):
    """What a connection is for."""

    RANK = auto()
    """It belongs to a rank, or to the command that launched the job: the run goes on while one of them is open."""
    LISTENER = auto()
    """It wants alerts and new verdicts."""
    RESPONDER = auto()
    """It answers requests for the flight record of its rank."""


class Connection:
    """One open connection."""

    def __init__(self, accepted: socket.socket) -> None:
        self.use = ConnectionUse.RANK
        self._socket = accepted
        accepted.setblocking(False)

    @property
    def process(self) -> int:
        """The process at the other end."""
        return peer_credentials(self._socket).process

    async def receive(self) -> bytes:
        """The next packet; empty when the other side is gone."""
        return await asyncio.get_running_loop().sock_recv(self._socket, MAX_MESSAGE_BYTES)

    async def answer(self, message: Message) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, encode(message))

    def notify(self, message: Message) -> None:
        """Send without waiting: a listener that does not read loses messages and does not stop the run."""
        with contextlib.suppress(OSError):
            self._socket.send(encode(message))

    def close(self) -> None:
        self._socket.close()


Handler = Callable[[Any, Connection], Awaitable[Message | None]]
"""Receives a message of its class; gives the answer, if the class has one."""


class ConnectionServer:
    """Serves the connections of one job on one node. Owns one task per connection while `serve` runs."""

    def __init__(self, path: Path, handlers: Mapping[type[Message], Handler]) -> None:
        self._path = path
        self._handlers = handlers
        self._open: dict[Connection, asyncio.Task[None]] = {}
        self._all_closed = asyncio.Event()
        self._received = False
        """Whether any message has come: a connection that was only opened to see whether the socket is served must not
        end the sidecar."""

    async def serve(self) -> None:
        """Accept and serve; returns when the last connection has closed, or when none has come in time."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            unfinished = self._path.with_suffix(".new")
            server.bind(str(unfinished))
            server.listen(BACKLOG)
            server.setblocking(False)
            unfinished.rename(self._path)  # a process that sees the path can connect
            accepting = asyncio.create_task(self._accept(loop, server))
            first = loop.call_later(FIRST_CONNECTION_SECONDS, self._end_if_empty)
            try:
                await self._all_closed.wait()
            finally:
                first.cancel()
                tasks = [accepting, *self._open.values()]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._path.unlink(missing_ok=True)

    def end(self) -> None:
        """Close all connections: `serve` returns."""
        self._all_closed.set()

    def notify(self, use: ConnectionUse, message: Message) -> None:
        """Send to all connections of one use, without waiting."""
        for connection in self.connections(use):
            connection.notify(message)

    def connections(self, use: ConnectionUse) -> list[Connection]:
        return [connection for connection in self._open if connection.use is use]

    async def _accept(self, loop: asyncio.AbstractEventLoop, server: socket.socket) -> None:
        while True:
            try:
                accepted, _ = await loop.sock_accept(server)
            except OSError as error:  # this process or the machine has no descriptor left for a moment
                log.warning("a rank could not connect yet: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            connection = Connection(accepted)
            self._open[connection] = asyncio.create_task(self._serve(connection))

    async def _serve(self, connection: Connection) -> None:
        try:
            while packet := await connection.receive():
                self._received = True
                await self._handle(packet, connection)
        except OSError as error:
            log.warning("the connection of a rank ended: %s: %s", type(error).__name__, error)
        finally:
            del self._open[connection]
            connection.close()
            if self._received:
                self._end_if_empty()

    async def _handle(self, packet: bytes, connection: Connection) -> None:
        """An error in one message ends that message only."""
        asked = wants_answer(packet)
        try:
            message = decode(packet).message
            if type(message) not in self._handlers:
                raise MessageError(f"verb {message.VERB!r} is not one that the sidecar receives")
            answer = await self._handlers[type(message)](message, connection)
        except ValueError as error:  # also for what a message contains, such as a fingerprint
            log.warning("a message of a rank was not handled: %s", error)
            answer = Failure(str(error))
        except Exception as error:
            log.exception("a message of a rank was not handled")
            answer = Failure(f"the sidecar failed ({type(error).__name__})")
        if asked and answer is not None:
            await connection.answer(answer)

    def _end_if_empty(self) -> None:
        if not self._open:
            self._all_closed.set()
