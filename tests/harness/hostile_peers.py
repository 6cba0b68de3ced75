"""Services that answer HTTP slowly, endlessly or wrongly: what a proxy in trouble does without malice, and an attacker
with it. Each is a real server on a port of its own."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

DRIP_SECONDS = 0.05
"""Between two bytes: shorter than any time limit of one read."""
_RESET = struct.pack("ii", 1, 0)
"""`struct linger` by which closing a connection resets it (socket(7))."""
_OK = b"HTTP/1.1 200 OK\r\n"


class Served:
    """One connection that a hostile service has accepted."""

    def __init__(self, connection: socket.socket, stopped: threading.Event, port: int) -> None:
        self._connection, self._stopped, self.port = connection, stopped, port

    def read_request(self) -> None:
        """Until the blank line; the body, if there is one, is not read."""
        content = b""
        while b"\r\n\r\n" not in content and (more := self._connection.recv(65536)):
            content += more

    def read_all(self) -> bytes:
        """The request with its body, whose length it states."""
        content = b""
        while not _is_whole(content) and (more := self._connection.recv(65536)):
            content += more
        return content

    def send(self, content: bytes) -> None:
        self._connection.sendall(content)

    def send_endlessly(self, content: bytes) -> None:
        """As fast as the other end reads."""
        while not self._stopped.is_set():
            self.send(content)

    def drip(self, content: bytes) -> None:
        """The same bytes for ever, one at a time."""
        while True:
            for byte in content:
                if self._stopped.wait(DRIP_SECONDS):
                    return
                self.send(bytes([byte]))

    def wait(self) -> None:
        """Say nothing, and read nothing, until the service ends."""
        self._stopped.wait()

    def reset(self) -> None:
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def _is_whole(content: bytes) -> bool:
    head, end, body = content.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *([0-9]+)", head)
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


def _silent(peer: Served) -> None:
    peer.read_request()
    peer.wait()


def _reads_nothing(peer: Served) -> None:
    peer.wait()


def _drips_status(peer: Served) -> None:
    peer.drip(b"HTTP/1.1 200 O" + b"K" * 1000)


def _drips_headers(peer: Served) -> None:
    peer.read_request()
    peer.send(_OK)
    peer.drip(b"A: b\r\n")


def _drips_body(peer: Served) -> None:
    peer.read_request()
    peer.send(_OK + b"Content-Length: 99999\r\n\r\n")
    peer.drip(b"x 1\n")


def _drips_body_without_length(peer: Served) -> None:
    peer.read_request()
    peer.send(_OK + b"\r\n")
    peer.drip(b"x 1\n")


def _drips_chunks(peer: Served) -> None:
    peer.read_request()
    peer.send(_OK + b"Transfer-Encoding: chunked\r\n\r\n")
    peer.drip(b"1\r\nx\r\n")


def _continues_for_ever(peer: Served) -> None:
    peer.read_request()
    peer.send_endlessly(b"HTTP/1.1 100 Continue\r\n\r\n")


def _drips_continues(peer: Served) -> None:
    peer.read_request()
    peer.drip(b"HTTP/1.1 100 Continue\r\n\r\n")


def _endless_headers(peer: Served) -> None:
    peer.read_request()
    peer.send(_OK)
    peer.send_endlessly(b"Name: value\r\n" * 100)


def _endless_header(peer: Served) -> None:
    peer.read_request()
    peer.send(_OK + b"Name: ")
    peer.send_endlessly(b"x" * 4096)


def _huge_body(peer: Served) -> None:
    peer.read_request()
    peer.send(_OK + b"Content-Length: 1000000000000\r\n\r\n")
    peer.send_endlessly(b"x" * 65536)


def _body_without_end(peer: Served) -> None:
    peer.read_request()
    peer.send(_OK + b"\r\n")
    peer.send_endlessly(b"x" * 65536)


def _chunks_without_end(peer: Served) -> None:
    peer.read_request()
    peer.send(_OK + b"Transfer-Encoding: chunked\r\n\r\n")
    peer.send_endlessly(b"1\r\nx\r\n" * 1000)


def _endless_chunk_extension(peer: Served) -> None:
    peer.read_request()
    peer.send(_OK + b"Transfer-Encoding: chunked\r\n\r\n1;")
    peer.send_endlessly(b"x" * 4096)


def _endless_trailers(peer: Served) -> None:
    peer.read_request()
    peer.send(_OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n")
    peer.send_endlessly(b"Name: value\r\n" * 100)


def _resets(peer: Served) -> None:
    peer.read_request()
    peer.reset()


def _ends_too_early(peer: Served) -> None:
    peer.read_request()
    peer.send(_OK + b"Content-Length: 100\r\n\r\nx")


def _redirects_to_itself(peer: Served) -> None:
    peer.read_request()
    place = f"http://127.0.0.1:{peer.port}/".encode()
    peer.send(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n")


def _drips_a_handshake(peer: Served) -> None:
    """The header of a long record of TLS, and then its content, bit by bit."""
    peer.send(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03")
    peer.drip(b"\x00")


HOSTILE_PEERS: dict[str, Callable[[Served], None]] = {
    "is silent": _silent,
    "reads nothing": _reads_nothing,
    "drips the status": _drips_status,
    "drips headers": _drips_headers,
    "drips the body": _drips_body,
    "drips a body without a length": _drips_body_without_length,
    "drips chunks": _drips_chunks,
    "continues for ever": _continues_for_ever,
    "drips continues": _drips_continues,
    "sends headers for ever": _endless_headers,
    "sends one header for ever": _endless_header,
    "sends a huge body": _huge_body,
    "sends a body without an end": _body_without_end,
    "sends chunks without an end": _chunks_without_end,
    "sends an extension of a chunk for ever": _endless_chunk_extension,
    "sends trailers for ever": _endless_trailers,
    "resets": _resets,
    "ends too early": _ends_too_early,
    "redirects to itself": _redirects_to_itself,
    "drips a handshake": _drips_a_handshake,
}
"""What a service does that accepts connections."""


@contextmanager
def hostile_peer(behaviour: Callable[[Served], None], port: int = 0) -> Iterator[int]:
    """The port of a service that treats every connection so."""
    stopped = threading.Event()
    listening = socket.create_server(("127.0.0.1", port))
    chosen = int(listening.getsockname()[1])

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            behaviour(Served(connection, stopped, chosen))

    def accept() -> None:
        with suppress(OSError):
            while True:
                accepted, _ = listening.accept()
                accepted.settimeout(10)
                threading.Thread(target=serve, args=(accepted,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield chosen
    finally:
        stopped.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


@contextmanager
def full_port() -> Iterator[int]:
    """A port whose queue is full, so that connecting to it takes for ever: the kernel drops what comes (listen(2))."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        fillers = [socket.socket() for _ in range(2)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(listening.getsockname())
            yield int(listening.getsockname()[1])
        finally:
            for filler in fillers:
                filler.close()
