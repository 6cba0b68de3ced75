"""The connections of a listening port: which ones are closed so that others find room.

gRPC accepts connections and offers no way to close one, nor to limit them by peer. Its sockets belong to this process,
so they are found among its open files; shutting one down makes gRPC end the connection as if the client had gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pharoah_serving.peers import Peers

log = logging.getLogger("pharoah.provider.services")

LOOK_SECONDS = 1.0
OPEN_FILES = Path("/proc/self/fd")
"""Linux lists the open files of a process there; elsewhere no connection is closed."""
UNKNOWN_CONNECTIONS = 256
"""Connections over which nobody known has called so far; above that the oldest are closed. A client calls within
milliseconds after it has connected, so those that stay are probes of health and attackers."""
GRACE_LOOKS = 2
"""Looks for which a new connection is left alone, whatever comes: a client may need that long to call."""


@dataclass
class ConnectionWatch:
    """Looks at the connections once a second and closes those that should be closed."""

    port: int
    peers: Peers
    _names: dict[str, str | None] = field(default_factory=dict)
    """By identity of a socket: the peer of a connection to the port; None for any other socket."""
    _looks: dict[str, int] = field(default_factory=dict)
    """Connection to how many looks have found it, oldest first."""

    async def run(self) -> None:
        """Until cancelled."""
        while OPEN_FILES.exists():
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except OSError as error:
                log.warning("connections could not be looked at: %s", error.strerror)

    async def look(self) -> list[str]:
        """Close what should be closed; the names of those connections."""
        marked, known = set(self.peers.to_close), set(self.peers.known)
        self.peers.to_close.clear()
        return await asyncio.to_thread(self._close, marked, known)

    def _close(self, marked: set[str], known: set[str]) -> list[str]:
        entries = os.listdir(OPEN_FILES)  # noqa: PTH208 - one system call for thousands of entries
        if not marked and len(entries) <= UNKNOWN_CONNECTIONS:
            return []
        found = self._find(entries)
        self._looks = {name: self._looks.get(name, 0) + 1 for name in [*self._looks, *found] if name in found}
        unknown = [name for name in self._looks if name not in known]
        settled = [name for name in unknown if self._looks[name] > GRACE_LOOKS]
        surplus = set(settled[: max(0, len(unknown) - UNKNOWN_CONNECTIONS)])
        closing = [name for name in found if name in marked or name in surplus]
        for name in closing:
            _shut_down(found[name], name)
        return closing

    def _find(self, entries: list[str]) -> dict[str, int]:
        """Connections to the port by peer, with their file descriptors."""
        found, names = dict[str, int](), dict[str, str | None]()
        for entry in entries:
            try:
                identity = os.readlink(f"{OPEN_FILES}/{entry}")  # noqa: PTH115 - thousands of times a second
            except OSError:  # it was closed meanwhile
                continue
            if identity.startswith("socket:"):
                names[identity] = name = (
                    self._names[identity] if identity in self._names else _peer(int(entry), self.port)
                )
                if name is not None:
                    found[name] = int(entry)
        self._names = names
        return found


def watches_of(endpoint: str, peers: Peers) -> list[ConnectionWatch]:
    """The watch over the connections of `HOST:PORT`. Those of a Unix socket have no names, so none is watched."""
    _, _, port = endpoint.rpartition(":")
    return [ConnectionWatch(int(port), peers)] if port.isdecimal() else []


def _peer(descriptor: int, port: int) -> str | None:
    """The peer of an accepted connection to this port; None for any other socket."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as same:
        if same.family in (socket.AF_INET, socket.AF_INET6) and same.getsockname()[1] == port:
            return _name(same)
    return None


def _name(connection: socket.socket) -> str:
    """`ipv4:HOST:PORT` or `ipv6:%5BHOST%5D:PORT`, as `ServicerContext.peer` has it. Raises OSError."""
    host, port, *_ = connection.getpeername()
    if connection.family == socket.AF_INET6 and not host.startswith("::ffff:"):
        return f"ipv6:%5B{host}%5D:{port}"
    return f"ipv4:{host.removeprefix('::ffff:')}:{port}"


def _shut_down(descriptor: int, name: str) -> None:
    """Shut down the socket behind a descriptor, if it still is the one of this peer."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as same:
        if _name(same) == name:
            same.shutdown(socket.SHUT_RDWR)
