"""The addresses of a host, within a time: the resolver of the system has no limit that a caller could set."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from concurrent.futures import Future
from typing import Any, NamedTuple

from pharoah_system.own_thread import begin_in_own_thread

MAX_HANGING_NAMES = 16
"""Names that are looked up at once; a resolver that hangs holds one thread for each, however often it is asked."""


class HostAddress(NamedTuple):
    """Where to connect to."""

    family: int
    socket_address: tuple[Any, ...]
    """As `socket.connect` takes it."""


_hanging: dict[str, Future[list[Any]]] = {}
_lock = threading.Lock()


def resolve(host: str, port: int, limit_seconds: float) -> list[HostAddress]:
    """The addresses of a name or of an address, the best first; an address is not looked up.

    Raises OSError, and TimeoutError when the resolver has not answered in time. It goes on in a thread of its own then,
    and the next caller who asks for the same name waits for the same answer.
    """
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return _addresses(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST), port)
    try:
        found = _ask(host).result(limit_seconds)
    except UnicodeError as error:  # a label that is empty or too long
        raise OSError(f"{host!r:.80} is no name of a host: {error}") from None
    return _addresses(found, port)


def _ask(host: str) -> Future[list[Any]]:
    with _lock:
        answer = _hanging.get(host)
        if answer is not None and not answer.done():
            return answer
        for name in [name for name, other in _hanging.items() if other.done()]:
            del _hanging[name]
        if len(_hanging) >= MAX_HANGING_NAMES:
            raise OSError(f"{len(_hanging)} names of hosts are looked up already, and none is found")
        try:
            answer = begin_in_own_thread(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
        except RuntimeError as error:
            raise OSError(f"no thread to look up a name: {error}") from None
        _hanging[host] = answer
        return answer


def _addresses(found: list[Any], port: int) -> list[HostAddress]:
    return [HostAddress(family, (address[0], port, *address[2:])) for family, _, _, _, address in found]
