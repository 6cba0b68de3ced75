"""One exchange over HTTP/1.1 with one deadline, for whoever asks another service or sends it something.

A time limit that bounds one read does not bound an exchange: a peer that sends a byte now and then holds its caller for
ever. Here each wait, from the name of the host to the last byte of the body, has what is left of the deadline. An
exchange has a connection of its own; no proxy, no redirection, no cookie. Certificates are verified.

The call blocks for as long as the deadline at most, so a caller with an event loop makes it in a thread.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pharoah_system.host_addresses import HostAddress, resolve
from pharoah_system.http_address import (
    HttpAddress,
    HttpError,
    InvalidAnswerError,
    OverdueError,
    Phase,
    UnreachableError,
)

MAX_HEAD_BYTES = 1 << 14
"""Status lines and headers together; servers and proxies commonly take 8 to 16 KB of headers."""
MAX_HEADER_LINES = 100
MAX_INTERIM_ANSWERS = 1
"""Answers with a status 1xx before the answer itself; they could go on for ever (RFC 9110, section 15.2)."""
MAX_CHUNKS = 1 << 14
"""Chunks of one body. A server that flushes after each 2 KB sends 4,000 for 8 MB."""
MAX_CHUNK_LINE_BYTES = 256
"""The size of a chunk, with extensions that nobody uses."""
_RECEIVED_BYTES = 1 << 16
_STATUS = re.compile(rb"HTTP/1\.[0-9] ([1-9][0-9]{2})(?: [^\x00]*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*)")
"""A name and a value (RFC 9110, section 5)."""
_NUMBER, _CHUNK_SIZE = re.compile(rb"[0-9]{1,15}"), re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?")
_FIRST_SUCCESS, _FIRST_REDIRECT, _FIRST_ERROR = 200, 300, 400
_BODILESS = (204, 304)

CheckPeer = Callable[[socket.socket, float], None]
"""Called with the connection and the seconds that are left, before anything is sent; raises what ends the exchange."""


@dataclass(frozen=True)
class HttpAnswer:
    """What came back."""

    status: int
    headers: Mapping[bytes, bytes]
    """By name in lower case; of a header that comes twice, the last one."""
    body: bytes
    """Empty where the caller does not read it."""

    @property
    def is_success(self) -> bool:
        return _FIRST_SUCCESS <= self.status < _FIRST_REDIRECT

    @property
    def redirects_to(self) -> str:
        """Where the answer sends us, which we do not follow: host and scheme only. Empty for any other answer."""
        if not _FIRST_REDIRECT <= self.status < _FIRST_ERROR or b"location" not in self.headers:
            return ""
        try:
            return HttpAddress.from_url(self.headers[b"location"].decode("latin-1")).origin
        except ValueError:
            return "another path"


def get(
    address: HttpAddress,
    *,
    limit_seconds: float,
    max_body_bytes: int,
    headers: Mapping[str, str] | None = None,
    check_peer: CheckPeer | None = None,
) -> HttpAnswer:
    """Ask for what is at an address. Raises HttpError, and what `check_peer` raises."""
    return _exchange(address, "GET", headers or {}, b"", limit_seconds, max_body_bytes, check_peer)


def post(
    address: HttpAddress,
    body: bytes,
    *,
    content_type: str,
    limit_seconds: float,
    max_body_bytes: int | None = None,
) -> HttpAnswer:
    """Send something. The body of the answer is read only with a `max_body_bytes`. Raises HttpError."""
    headers = {"Content-Type": content_type, "Content-Length": str(len(body))}
    return _exchange(address, "POST", headers, body, limit_seconds, max_body_bytes, None)


def _exchange(
    address: HttpAddress,
    method: str,
    headers: Mapping[str, str],
    body: bytes,
    limit_seconds: float,
    max_body_bytes: int | None,
    check_peer: CheckPeer | None,
) -> HttpAnswer:
    running = _Running(address.origin, limit_seconds)
    with ExitStack() as owned:
        connection = owned.enter_context(_open_connection(address, running))
        if address.uses_tls:
            connection = owned.enter_context(_encrypt(connection, address, running))
        if check_peer is not None:
            with running.phase(Phase.CHECK):
                check_peer(connection, running.get_remaining())
        with running.phase(Phase.SEND):
            for content in (_request(address, method, headers), body):
                unsent = memoryview(content)
                while unsent:
                    connection.settimeout(running.get_remaining())
                    unsent = unsent[connection.send(unsent) :]
        return _Incoming(connection, running).answer(max_body_bytes)


class _Running:
    """An exchange that goes on: what is left of its time, and how far it has come."""

    def __init__(self, origin: str, limit_seconds: float) -> None:
        self.origin, self._limit_seconds = origin, limit_seconds
        self._until = time.monotonic() + limit_seconds
        self._phase = Phase.NAME

    def get_remaining(self) -> float:
        """Seconds, more than 0. Raises TimeoutError."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def invalid(self, why: str) -> InvalidAnswerError:
        return InvalidAnswerError(self.origin, self._phase, why)

    @contextmanager
    def phase(self, phase: Phase) -> Any:
        """What goes wrong inside is an HttpError of this phase."""
        self._phase = phase
        try:
            yield
        except HttpError:
            raise
        except TimeoutError:
            raise OverdueError(self.origin, phase, f"it has not answered in {self._limit_seconds:g} s") from None
        except OSError as error:
            raise UnreachableError(self.origin, phase, error.strerror or str(error) or type(error).__name__) from None


@contextmanager
def _open_connection(address: HttpAddress, running: _Running) -> Any:
    """A connection to the first address of the host that answers; none of them takes the time of the others."""
    with running.phase(Phase.NAME):
        found = resolve(address.host, address.port, running.get_remaining())
    with running.phase(Phase.CONNECT):
        connection = _connect(found, running)
    with connection:
        yield connection


def _connect(found: list[HostAddress], running: _Running) -> socket.socket:
    failed: OSError = OSError("the host has no address")
    for number, (family, address) in enumerate(found):
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(running.get_remaining() / (len(found) - number))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failed = error
        else:
            return connection
    raise failed


def _encrypt(connection: socket.socket, address: HttpAddress, running: _Running) -> Any:
    import ssl  # takes 10 ms, and most receivers are asked without

    with running.phase(Phase.TLS):
        context = ssl.create_default_context()
        wrapped = context.wrap_socket(connection, server_hostname=address.host, do_handshake_on_connect=False)
        try:
            wrapped.settimeout(running.get_remaining())
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped


def _request(address: HttpAddress, method: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {address.target} HTTP/1.1", f"Host: {address.authority}", "Connection: close"]
    lines += ["Accept-Encoding: identity", "User-Agent: pharoah"]
    if address.authorization:
        lines.append(f"Authorization: {address.authorization}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


class _Incoming:
    """What the peer sends, of which no part is longer than it may be."""

    def __init__(self, connection: socket.socket, running: _Running) -> None:
        self._connection, self._running = connection, running
        self._buffer, self._searched = bytearray(), 0
        self._head_bytes, self._header_lines = MAX_HEAD_BYTES, MAX_HEADER_LINES
        """What is left of both, over all heads and trailers of this exchange."""

    def answer(self, max_body_bytes: int | None) -> HttpAnswer:
        """Raises HttpError."""
        for _ in range(1 + MAX_INTERIM_ANSWERS):
            with self._running.phase(Phase.STATUS):
                status = self._status()
            with self._running.phase(Phase.HEADERS):
                headers = self._headers()
            if status >= _FIRST_SUCCESS:
                break
        else:
            raise self._running.invalid(f"more than {MAX_INTERIM_ANSWERS} interim answers")
        if max_body_bytes is None or status in _BODILESS:
            return HttpAnswer(status, headers, b"")
        with self._running.phase(Phase.BODY):
            return HttpAnswer(status, headers, self._body(headers, max_body_bytes))

    def _status(self) -> int:
        found = _STATUS.fullmatch(self._head_line())
        if found is None or found[1] == b"101":
            raise self._running.invalid("it does not answer as HTTP/1.1 does")
        return int(found[1])

    def _headers(self) -> dict[bytes, bytes]:
        headers: dict[bytes, bytes] = {}
        while line := self._head_line():
            self._header_lines -= 1
            found = _HEADER.fullmatch(line)
            if found is None or self._header_lines < 0:
                raise self._running.invalid(f"a header that is none, or more than {MAX_HEADER_LINES} of them")
            name, value = found[1].lower(), found[2].strip()
            if name == b"content-length" and headers.get(name, value) != value:
                raise self._running.invalid("two lengths of the body")
            headers[name] = value
        return headers

    def _head_line(self) -> bytes:
        line = self._line(self._head_bytes)
        self._head_bytes -= len(line) + 1
        return line

    def _body(self, headers: Mapping[bytes, bytes], most: int) -> bytes:
        if (coding := headers.get(b"transfer-encoding")) is not None:
            if coding.lower() != b"chunked":
                raise self._running.invalid("a transfer encoding other than chunked")
            return self._chunks(most)
        if (length := headers.get(b"content-length")) is None:
            return self._rest(most)
        if not _NUMBER.fullmatch(length):
            raise self._running.invalid("a length of the body that is no number")
        return self._exactly(self._bound(int(length), most))

    def _chunks(self, most: int) -> bytes:
        body = bytearray()
        for _ in range(MAX_CHUNKS):
            size = _CHUNK_SIZE.fullmatch(self._line(MAX_CHUNK_LINE_BYTES))
            if size is None:
                raise self._running.invalid("a chunk without a size")
            length = int(size[1], 16)
            if not length:
                self._headers()  # the trailers
                return bytes(body)
            self._bound(len(body) + length, most)
            body += self._exactly(length)
            if self._line(MAX_CHUNK_LINE_BYTES):
                raise self._running.invalid("a chunk that is longer than its size")
        raise self._running.invalid(f"more than {MAX_CHUNKS} chunks")

    def _bound(self, length: int, most: int) -> int:
        if length > most:
            raise self._running.invalid(f"a body of more than {most} bytes")
        return length

    def _line(self, most: int) -> bytes:
        """The next line without its end. Raises InvalidAnswerError for one of more than `most` bytes."""
        while (end := self._buffer.find(b"\n", self._searched)) < 0 and len(self._buffer) <= most:
            self._searched = len(self._buffer)
            self._receive()
        if not 0 <= end <= most:
            raise self._running.invalid(f"a line or a head that is too long (at most {MAX_HEAD_BYTES} bytes)")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line.removesuffix(b"\r")

    def _exactly(self, length: int) -> bytes:
        while len(self._buffer) < length:
            self._receive()
        content = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._searched = 0
        return content

    def _rest(self, most: int) -> bytes:
        """All until the peer closes the connection."""
        while self._receive_response():
            self._bound(len(self._buffer), most)
        self._bound(len(self._buffer), most)
        return bytes(self._buffer)

    def _receive(self) -> None:
        if not self._receive_response():
            raise self._running.invalid("the answer ends too early")

    def _receive_response(self) -> bool:
        """Wait for more; whether any came."""
        self._connection.settimeout(self._running.get_remaining())
        content = self._connection.recv(_RECEIVED_BYTES)
        self._buffer += content
        return bool(content)
