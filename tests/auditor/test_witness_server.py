"""The witness as a server: what clients can take of it, and what its operator hears."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from pharoah_auditor import witness as module
from pharoah_auditor.witness import TIMEOUT_SECONDS, Witness, serve
from tests.auditor.test_auditor import ENTRIES, LOG, WITNESS_KEY, request
from tests.harness.until import wait_until

REQUEST = request(0, ENTRIES)


def head(length: object = len(REQUEST)) -> bytes:
    return f"POST /add-checkpoint HTTP/1.0\r\nContent-Length: {length}\r\n\r\n".encode()


@contextmanager
def running(state: Path, *clock: Callable[[], float]) -> Iterator[ThreadingHTTPServer]:
    server = serve(Witness("w.example", WITNESS_KEY, [LOG], state), "127.0.0.1", 0, *clock)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def connected(server: ThreadingHTTPServer, host: str = "127.0.0.1") -> socket.socket:
    """A connection from an address of this machine."""
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=5, source_address=(host, 0))


def answer(server: ThreadingHTTPServer, sent: bytes, host: str = "127.0.0.1") -> bytes:
    """Everything that comes back until the witness closes the connection."""
    with connected(server, host) as client:
        client.sendall(sent)
        return received(client)


def received(client: socket.socket) -> bytes:
    content = b""
    try:
        while part := client.recv(4096):
            content += part
    except ConnectionResetError:
        pass
    return content


def late_after(calls: int) -> Callable[[], float]:
    """A clock that stands still for so many calls, and is then past the deadline of every request that has begun."""
    asked = iter(range(1000))
    return lambda: 0.0 if next(asked) < calls else TIMEOUT_SECONDS + 1


def test_a_request_that_comes_in_drips_ends_with_its_deadline(tmp_path: Path) -> None:
    """The clock is read when the connection begins, and before each read."""
    with running(tmp_path / "seen.json", late_after(2)) as server, connected(server) as client:
        client.sendall(head().partition(b"\r\n")[0] + b"\r\n")
        assert received(client) == b"", "no headers"
    with running(tmp_path / "seen.json", late_after(2)) as server, connected(server) as client:
        client.sendall(head() + REQUEST[:5])
        assert b" 408 " in received(client), "and this is no failure to write the state"


def test_connections_beyond_a_number_are_closed_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REQUESTS", 2)
    with running(tmp_path / "seen.json") as server:
        silent = [connected(server) for _ in range(2)]
        assert answer(server, b"") == b""
        for client in silent:
            client.close()
        wait_until(lambda: b" 200 " in answer(server, head() + REQUEST), "a place to become free")


def test_a_stranger_who_holds_connections_open_keeps_no_provider_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_REQUESTS", 3)
    monkeypatch.setattr(module, "MAX_REQUESTS_OF_ADDRESS", 2)
    with running(tmp_path / "seen.json") as server:
        silent = [connected(server, "127.0.0.2") for _ in range(3)]
        assert b" 200 " in answer(server, head() + REQUEST)
        assert answer(server, b"", "127.0.0.2") == b"", "the stranger has as many as one address may have"
        for client in silent:
            client.close()
        wait_until(lambda: b" 400 " in answer(server, head(""), "127.0.0.2"), "a place of the address to become free")


@pytest.mark.parametrize("length", ["9" * 5000, "9" * 9, "-1", "", "x"])
def test_a_length_that_is_none_is_refused(tmp_path: Path, length: str) -> None:
    with running(tmp_path / "seen.json") as server:
        assert b" 400 " in answer(server, head(length))


def test_a_connection_that_a_client_ends_is_no_line_and_an_error_of_ours_is_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path / "seen.json") as server, connected(server) as client:
        for error in (BrokenPipeError(), ConnectionResetError(), KeyError("ours")):
            try:
                raise error
            except Exception:
                server.handle_error(client, ("192.0.2.1", 1))
    assert capsys.readouterr().err == "" and len(caplog.records) == 1
    assert "192.0.2.1" in caplog.text and "KeyError" in caplog.text


def test_an_operator_hears_that_the_state_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), running(tmp_path / "gone" / "seen.json") as server:
        assert b" 500 " in answer(server, head() + REQUEST)
    assert "state cannot be written" in caplog.text and "gone" in caplog.text
