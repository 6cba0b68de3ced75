"""Processes meet at a port, and speak to no stranger: real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from pharoah_benchmarks.micro import Peer
from pharoah_benchmarks.micro_kernels.meeting import GREETING, MeetingError, meet
from pharoah_system.peer_networks import RefusedPeerError
from tests.harness.site import free_port

TOKEN, OTHER_TOKEN = "t" * 43, "u" * 43
LOOPBACK = ("127.0.0.0/8",)
STORE_PORT = 4711


def never_opened() -> int:
    raise AssertionError("a store is opened before the partner is known")


def peers(size: int = 2, token: str = TOKEN) -> list[Peer]:
    place = f"127.0.0.1:{free_port()}"
    return [Peer(rank, size, place, token, LOOPBACK) for rank in range(size)]


def connect(port: int) -> socket.socket:
    """To rank 0 of a meeting, which begins to listen at about this moment."""
    while True:
        with suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port))


def stranger(answer: Callable[[socket.socket], bytes]) -> tuple[int, threading.Thread, list[bytes]]:
    """The port of somebody else's service, and what it is sent after it has answered."""
    listening, heard = socket.create_server(("127.0.0.1", 0)), list[bytes]()

    def serve() -> None:
        with listening, listening.accept()[0] as connection, suppress(OSError):
            connection.sendall(answer(connection))
            while content := connection.recv(4096):
                heard.append(content)

    thread = threading.Thread(target=serve)
    thread.start()
    return int(listening.getsockname()[1]), thread, heard


def test_all_ranks_get_the_store_of_rank_0_although_strangers_come_first() -> None:
    first, *others = peers(4)
    port = int(first.rendezvous.rpartition(":")[2])
    with ThreadPoolExecutor(4) as pool:
        found = pool.submit(meet, first, 20.0, lambda: STORE_PORT)
        silent, rude, forger = connect(port), connect(port), connect(port)
        with silent, rude, forger:
            rude.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
            forger.sendall(bytes(32) + b"\0\1" + bytes(32))
            joined = list(pool.map(lambda peer: meet(peer, 20.0, never_opened), others))
            assert found.result() == ("127.0.0.1", STORE_PORT)
    assert joined == [("127.0.0.1", STORE_PORT)] * 3


@pytest.mark.parametrize("limit_seconds", [0.5])
def test_a_silent_service_is_sent_nothing_and_holds_nobody(limit_seconds: float) -> None:
    port, thread, heard = stranger(lambda _: b"")
    peer = Peer(1, 2, f"127.0.0.1:{port}", TOKEN, LOOPBACK)
    with pytest.raises(MeetingError, match="has not greeted in time"):
        meet(peer, limit_seconds, never_opened)
    thread.join()
    assert heard == []


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.6\r\n" * 20, bytes(100)])
def test_a_service_that_greets_otherwise_is_sent_nothing(answer: bytes) -> None:
    port, thread, heard = stranger(lambda _: answer)
    with pytest.raises(MeetingError, match="is not rank 0 of this meeting"):
        meet(Peer(1, 2, f"127.0.0.1:{port}", TOKEN, LOOPBACK), 10.0, never_opened)
    thread.join()
    assert heard == []


def test_a_partner_with_another_token_is_a_stranger_on_both_sides() -> None:
    first, second = peers()
    wrong = Peer(1, 2, second.rendezvous, OTHER_TOKEN, LOOPBACK)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(meet, first, 3.0, never_opened)
        with pytest.raises(MeetingError, match="is not rank 0"):
            meet(wrong, 10.0, never_opened)
        with pytest.raises(MeetingError, match="0 of 1 partners"):
            found.result()


def test_what_an_imitator_repeats_of_us_is_no_proof() -> None:
    """It has no token and sends back what it is sent."""

    def echo(connection: socket.socket) -> bytes:
        connection.sendall(GREETING + bytes(32))
        return connection.recv(34, socket.MSG_WAITALL)[:32] + bytes(66)

    port, thread, heard = stranger(echo)
    with pytest.raises(MeetingError, match="is not rank 0"):
        meet(Peer(1, 2, f"127.0.0.1:{port}", TOKEN, LOOPBACK), 10.0, never_opened)
    thread.join()
    assert heard == [], "our own proof is sent only to who has proved to know the token"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_node_meets_nobody_outside_its_networks(rank: int) -> None:
    with pytest.raises(RefusedPeerError, match="--peer-network"):
        meet(Peer(rank, 2, f"127.0.0.1:{free_port()}", TOKEN, ("10.0.0.0/8",)), 1.0, never_opened)


def test_rank_0_closes_who_comes_from_outside_its_networks() -> None:
    first, second = peers()
    first = Peer(0, 2, first.rendezvous, TOKEN, ("127.0.0.1/32",))
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(meet, first, 20.0, lambda: STORE_PORT)
        connect(int(first.rendezvous.rpartition(":")[2])).close()
        with socket.create_connection(("127.0.0.1", int(first.rendezvous.rpartition(":")[2])),
                                      source_address=("127.0.0.2", 0)) as outside:  # fmt: skip
            assert outside.recv(1) == b""
        meet(second, 20.0, never_opened)
        found.result()
