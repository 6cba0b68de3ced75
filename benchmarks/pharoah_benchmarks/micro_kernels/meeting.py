"""How processes of several nodes meet before anything of torch is opened: none of them speaks to a stranger.

Rank 0 listens, the others connect. All of them know the token of this meeting, which nobody else does:

1. rank 0 sends a greeting and a random number; who sends something else first is not asked anything,
2. the other one sends a random number and its rank,
3. rank 0 proves that it knows the token (HMAC of both numbers), then the other one does,
4. rank 0 opens a store on a port that the kernel chooses, and sends the port with a proof.

Every wait has what is left of one deadline.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from pharoah_benchmarks.micro import Peer
from pharoah_system.host_addresses import HostAddress
from pharoah_system.peer_networks import is_peer_address, peer_place, read_networks

GREETING = b"pharoah meeting 1"
NUMBER_BYTES, PROOF_BYTES = 32, 32
MAX_GREETED = 16
"""Connections that rank 0 greets at once; strangers beyond are closed."""
GREETING_SECONDS = 2.0
"""How long one connection may take for its part. Strangers hold their own connection only."""
RETRY_SECONDS = 0.1
"""Pause of a rank that has come before rank 0 listens."""
_RANK, _PORT = struct.Struct("!H"), struct.Struct("!H")
_OF_FIRST, _OF_OTHER, _OF_PORT = b"first", b"other", b"port"
"""What a proof is for, so that none can be used for another."""


class MeetingError(OSError):
    """No meeting came about; the message says with whom."""


class StorePlace(NamedTuple):
    """Where a process reaches the store of its meeting."""

    host: str
    port: int


class _Greeted:
    """A partner that has proved that it knows the token."""

    def __init__(self, connection: socket.socket, rank: int, numbers: bytes) -> None:
        self.connection, self.rank, self.numbers = connection, rank, numbers


def meet(peer: Peer, limit_seconds: float, open_store: Callable[[], int]) -> StorePlace:
    """Where the store is for this process. Only rank 0 calls `open_store`, which returns the port.

    Raises MeetingError, RefusedPeerError, OSError, TimeoutError.
    """
    until = time.monotonic() + limit_seconds
    networks = None if peer.networks is None else read_networks(peer.networks)
    place = peer_place(peer.rendezvous, networks, limit_seconds)
    key = peer.token.encode()
    if peer.rank:
        return StorePlace(place.socket_address[0], _join(peer, place, key, until))
    with ExitStack() as owned:
        partners = _all_greeted(peer, place, key, until, owned)
        port = open_store()
        for partner in partners:
            partner.connection.settimeout(_compute_remaining(until))
            proof = _proof(key, _OF_PORT, partner.numbers + _PORT.pack(port))
            partner.connection.sendall(_PORT.pack(port) + proof)
    return StorePlace("127.0.0.1", port)


def _all_greeted(peer: Peer, place: HostAddress, key: bytes, until: float, owned: ExitStack) -> Sequence[_Greeted]:
    """The partners of rank 0. Each connection is greeted in a thread of its own."""
    listening = owned.enter_context(_listening(place))
    partners: dict[int, _Greeted] = {}
    turn, places = threading.Condition(), threading.BoundedSemaphore(MAX_GREETED)

    def greet(connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError):
                found = _greet(connection, peer, key, min(until, time.monotonic() + GREETING_SECONDS))
                with turn:
                    if found.rank not in partners:
                        partners[found.rank] = found
                        return
            connection.close()
        finally:
            places.release()

    networks = None if peer.networks is None else read_networks(peer.networks)

    def close() -> None:
        for partner in partners.values():
            partner.connection.close()

    owned.callback(close)
    while len(partners) < peer.size - 1:
        try:
            listening.settimeout(min(RETRY_SECONDS, _compute_remaining(until)))
            connection, (host, *_) = listening.accept()
        except TimeoutError:
            if time.monotonic() < until:
                continue
            came = f"{len(partners)} of {peer.size - 1} partners came to {peer.rendezvous}"
            raise MeetingError(f"timed out: {came}") from None
        may_come = networks is None or is_peer_address(host, networks)
        if not may_come or not places.acquire(blocking=False):
            connection.close()
            continue
        threading.Thread(target=greet, args=(connection,), name="pharoah-greet", daemon=True).start()
    with turn:
        return list(partners.values())


def _greet(connection: socket.socket, peer: Peer, key: bytes, until: float) -> _Greeted:
    """Raises MeetingError for a stranger, OSError."""
    first = secrets.token_bytes(NUMBER_BYTES)
    connection.settimeout(_compute_remaining(until))
    connection.sendall(GREETING + first)
    other = _receive(connection, NUMBER_BYTES + _RANK.size, until)
    rank = _RANK.unpack(other[NUMBER_BYTES:])[0]
    numbers = first + other
    connection.settimeout(_compute_remaining(until))
    connection.sendall(_proof(key, _OF_FIRST, numbers))
    proof = _receive(connection, PROOF_BYTES, until)
    if not hmac.compare_digest(proof, _proof(key, _OF_OTHER, numbers)) or not 0 < rank < peer.size:
        raise MeetingError("a stranger")
    return _Greeted(connection, rank, numbers)


def _join(peer: Peer, place: HostAddress, key: bytes, until: float) -> int:
    """The port of the store of rank 0, which has proved that it knows the token."""
    stranger = MeetingError(f"what listens at {peer.rendezvous} is not rank 0 of this meeting")
    with _connect(peer, place, until) as connection:
        try:
            greeting = _receive(connection, len(GREETING) + NUMBER_BYTES, until)
            if not greeting.startswith(GREETING):
                raise stranger
            own = secrets.token_bytes(NUMBER_BYTES) + _RANK.pack(peer.rank)
            numbers = greeting[len(GREETING) :] + own
            connection.sendall(own)
            proof = _receive(connection, PROOF_BYTES, until)
            if not hmac.compare_digest(proof, _proof(key, _OF_FIRST, numbers)):
                raise stranger
            connection.sendall(_proof(key, _OF_OTHER, numbers))
            port = _receive(connection, _PORT.size, until)
            proof = _receive(connection, PROOF_BYTES, until)
        except TimeoutError:
            raise MeetingError(f"what listens at {peer.rendezvous} has not greeted in time") from None
    if not hmac.compare_digest(proof, _proof(key, _OF_PORT, numbers + port)):
        raise stranger
    return int(_PORT.unpack(port)[0])


def _listening(place: HostAddress) -> socket.socket:
    """On the address of the meeting, or on all where that address is not this machine's, as behind a translation."""
    family, address = place
    try:
        return socket.create_server(address[:2], family=family, backlog=MAX_GREETED)
    except OSError:
        return socket.create_server(("", address[1]), family=family, backlog=MAX_GREETED)


def _connect(peer: Peer, place: HostAddress, until: float) -> socket.socket:
    """A connection to rank 0, which may come a little later."""
    while True:
        connection = socket.socket(place.family, socket.SOCK_STREAM)
        try:
            connection.settimeout(_compute_remaining(until))
            connection.connect(place.socket_address)
            return connection
        except OSError as error:
            connection.close()
            if time.monotonic() + RETRY_SECONDS >= until:
                raise MeetingError(f"rank 0 cannot be reached at {peer.rendezvous}: {error}") from None
        time.sleep(RETRY_SECONDS)


def _receive(connection: socket.socket, count: int, until: float) -> bytes:
    """So many bytes. Raises TimeoutError at the deadline, also when a byte comes now and then."""
    content = b""
    while len(content) < count:
        connection.settimeout(_compute_remaining(until))
        part = connection.recv(count - len(content))
        if not part:
            raise MeetingError("the other end has closed the connection")
        content += part
    return content


def _compute_remaining(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time of the meeting is over")
    return left


def _proof(key: bytes, what: bytes, content: bytes) -> bytes:
    return hmac.digest(key, what + b"\0" + content, "sha256")
