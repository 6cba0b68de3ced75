"""The one HTTP client: real sockets, and peers that do everything to hold it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pharoah_provider.certificates import Authority
from pharoah_system import host_addresses
from pharoah_system.host_addresses import resolve
from pharoah_system.http_address import (
    HttpAddress,
    HttpAddressError,
    HttpError,
    InvalidAnswerError,
    OverdueError,
    Phase,
    UnreachableError,
)
from pharoah_system.http_client import HttpAnswer, get, post
from tests.harness.hostile_peers import HOSTILE_PEERS, full_port, hostile_peer

LIMIT_SECONDS = 0.4
MAX_BODY_BYTES = 100_000
REFUSED = {
    "continues for ever": Phase.HEADERS,
    "sends headers for ever": Phase.HEADERS,
    "sends one header for ever": Phase.HEADERS,
    "sends a huge body": Phase.BODY,
    "sends a body without an end": Phase.BODY,
    "sends chunks without an end": Phase.BODY,
    "sends an extension of a chunk for ever": Phase.BODY,
    "sends trailers for ever": Phase.BODY,
    "ends too early": Phase.BODY,
}
"""Peers whose answers are refused at once, by how far the exchange came; all others of the table use the time up."""


@contextmanager
def answering(*parts: bytes) -> Iterator[tuple[HttpAddress, list[bytes]]]:
    """A server that answers one request with these bytes and closes; and what it was sent."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                content = b""
                while b"\r\n\r\n" not in content:
                    content += connection.recv(65536)
                received.append(content)
                for part in parts:
                    connection.sendall(part)

        thread = threading.Thread(target=serve)
        thread.start()
        yield HttpAddress.from_url(f"http://127.0.0.1:{listening.getsockname()[1]}/metrics?a=b"), received
        thread.join()


def answer_to(*parts: bytes) -> HttpAnswer:
    with answering(*parts) as (address, _):
        return get(address, limit_seconds=10, max_body_bytes=MAX_BODY_BYTES)


@pytest.mark.parametrize("name", HOSTILE_PEERS)
def test_no_peer_holds_an_exchange_beyond_its_deadline(name: str) -> None:
    """Without the deadline of the whole most of these calls would never return."""
    with hostile_peer(HOSTILE_PEERS[name]) as port:
        address = HttpAddress.from_url(f"http://user:word@127.0.0.1:{port}/secret")
        if name == "redirects to itself":
            answer = get(address, limit_seconds=10, max_body_bytes=MAX_BODY_BYTES)
            assert not answer.is_success and answer.redirects_to == f"http://127.0.0.1:{port}"
            return
        with pytest.raises(HttpError) as raised:
            get(address, limit_seconds=10 if name in REFUSED else LIMIT_SECONDS, max_body_bytes=MAX_BODY_BYTES)
    if name in REFUSED:
        assert isinstance(raised.value, InvalidAnswerError) and raised.value.phase is REFUSED[name]
    else:
        assert isinstance(raised.value, UnreachableError if name == "resets" else OverdueError)
    assert f"127.0.0.1:{port}" in str(raised.value)
    assert "word" not in str(raised.value) and "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["is silent", "reads nothing", "drips a handshake"])
def test_no_peer_holds_a_handshake_beyond_the_deadline(name: str) -> None:
    with hostile_peer(HOSTILE_PEERS[name]) as port, pytest.raises(OverdueError, match="TLS"):
        get(HttpAddress.from_url(f"https://127.0.0.1:{port}/"), limit_seconds=LIMIT_SECONDS, max_body_bytes=1)


def test_no_peer_holds_a_sender_beyond_the_deadline() -> None:
    """It reads nothing, so that what is sent fills the buffers of both ends."""
    with hostile_peer(HOSTILE_PEERS["reads nothing"]) as port, pytest.raises(OverdueError) as raised:
        address = HttpAddress.from_url(f"http://127.0.0.1:{port}/")
        post(address, bytes(50_000_000), content_type="text/plain", limit_seconds=LIMIT_SECONDS)
    assert raised.value.phase is Phase.SEND


def test_a_peer_that_never_accepts_and_a_port_that_nobody_serves_are_no_connection() -> None:
    with full_port() as port, pytest.raises(OverdueError) as raised:
        get(HttpAddress.from_url(f"http://127.0.0.1:{port}/"), limit_seconds=LIMIT_SECONDS, max_body_bytes=1)
    assert raised.value.phase is Phase.CONNECT
    with pytest.raises(UnreachableError, match="refused"):
        get(HttpAddress.from_url(f"http://127.0.0.1:{port}/"), limit_seconds=10, max_body_bytes=1)


def test_a_resolver_that_hangs_holds_one_thread_for_each_name(monkeypatch: pytest.MonkeyPatch) -> None:
    released, asked = threading.Event(), []

    def hang(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        released.wait()
        raise socket.gaierror("released")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(host_addresses, "_hanging", {})
    try:
        for _ in range(3):
            with pytest.raises(OverdueError) as raised:
                get(HttpAddress.from_url("http://hangs.invalid/"), limit_seconds=0.05, max_body_bytes=1)
            assert raised.value.phase is Phase.NAME
        assert asked == ["hangs.invalid"]
        with pytest.raises(OSError, match="looked up already"):
            for number in range(host_addresses.MAX_HANGING_NAMES):
                with pytest.raises(TimeoutError):
                    resolve(f"h{number}.invalid", 1, 0.01)
    finally:
        released.set()


def test_a_request_says_what_it_must_and_an_answer_is_read() -> None:
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\n"
    with answering(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", body, b"hello") as (address, received):
        answer = get(address, limit_seconds=10, max_body_bytes=5, headers={"Accept": "text/plain"})
    assert (answer.status, answer.body, answer.headers[b"x"], answer.is_success) == (200, b"hello", b"y", True)
    lines = received[0].decode().split("\r\n")
    assert lines[0] == "GET /metrics?a=b HTTP/1.1"
    assert {f"Host: {address.authority}", "Connection: close", "Accept: text/plain"} <= set(lines)
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert answer_to(chunked, b"5;a=b\r\nhel", b"lo\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\n").body == b"hello!"
    assert answer_to(b"HTTP/1.0 200 OK\r\n\r\n", b"until ", b"the end").body == b"until the end"
    assert answer_to(b"HTTP/1.1 204 \r\n\r\n").body == b""
    assert answer_to(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno").status == 404


@pytest.mark.parametrize(
    "answer",
    [
        b"\x15\x03\x01\x00\x02\x02F\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 99 x\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 100 a\r\n\r\nHTTP/1.1 102 b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 101 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + bytes(MAX_BODY_BYTES + 1),
        b"",
    ],
    ids=lambda answer: repr(answer[-30:]),
)
def test_what_is_no_answer_or_too_much_is_refused(answer: bytes) -> None:
    with pytest.raises(HttpError):
        answer_to(answer)


def test_a_url_is_taken_apart_and_its_password_is_sent_and_never_shown() -> None:
    address = HttpAddress.from_url("https://us%40er:p%3Aw@[::1]/a b".replace(" ", "%20") + "?token=t")
    assert (address.host, address.port, address.target) == ("::1", 443, "/a%20b?token=t")
    assert address.authorization == "Basic dXNAZXI6cDp3"  # base64 of `us@er:p:w`
    assert address.origin == "https://[::1]"
    assert not {"p:w", "token", "dXNAZXI6cDp3"} & set(repr(address).replace("'", " ").split())
    assert HttpAddress.from_url("http://müller.example:8080").authority == "xn--mller-kva.example:8080"
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as (there, received):
        named = HttpAddress.from_url(f"http://u:p@127.0.0.1:{there.port}/")
        post(named, b"body", content_type="text/plain", limit_seconds=10)
    assert b"\r\nAuthorization: Basic dTpw\r\n" in received[0] and received[0].startswith(b"POST / HTTP/1.1")


@pytest.mark.parametrize(
    "url",
    ["", "ftp://h/", "http://", "http://h:0/", "http://h:99999/", "http://h:9a/", "http://h/\r\nX: y", "http://h/ x",
     "http://[::1/", "http://a..\ud800/", "http://h\u0130/".replace("h", "-" * 300), "http://h/" + "x" * 9000,
     "http://h;x/"],
)  # fmt: skip
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(HttpAddressError) as raised:
        HttpAddress.from_url(url.replace("://", "://u:hunter2@", 1))
    assert "hunter2" not in str(raised.value)


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert answer_to(b"HTTP/1.1 200 OK\r\n\r\n").status == 200


def test_a_certificate_that_nobody_has_signed_is_no_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ssl

    authority = Authority(tmp_path, "pharoah.local")
    authority.issue("provider", ("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "provider.pem", tmp_path / "provider.key")

    def asked() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def serve() -> None:
                connection, _ = listening.accept()
                try:
                    with context.wrap_socket(connection, server_side=True) as encrypted:
                        encrypted.recv(65536)
                        encrypted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                except OSError:
                    pass

            thread = threading.Thread(target=serve)
            thread.start()
            try:
                address = HttpAddress.from_url(f"https://127.0.0.1:{listening.getsockname()[1]}/")
                return get(address, limit_seconds=10, max_body_bytes=1).status
            finally:
                thread.join()

    with pytest.raises(UnreachableError, match=r"(?i)certificate"):
        asked()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert asked() == 200
