"""A witness of transparency logs, over HTTP as C2SP defines it (c2sp.org/tlog-witness).

It cosigns a checkpoint only when the log continues the last one it cosigned. It writes a checkpoint to disk before it
answers, so that it remembers the checkpoint after a crash. Tenants require cosignatures of more than half of the
witnesses they list: two halves that were shown two logs then have a witness in common, and it must be dishonest.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_protocol.log.checkpoint import NOTE_BYTES_LIMIT, WITNESS, CheckpointError, Note, Verifier, cosign
from pharoah_protocol.log.merkle import TreeError, verify_consistency
from pharoah_system.bounded_reading import parse_json
from pharoah_system.files import write_atomically
from pharoah_system.trusted_paths import own_content

log = logging.getLogger("pharoah.auditor.witness")

PROOF_HASHES_LIMIT = 63
"""C2SP tlog-witness."""
TIMEOUT_SECONDS = 10.0
"""How long a request may take to come in, all of it, and its answer to go out."""
MAX_REQUESTS = 64
"""Requests at once; further connections are closed unread."""
MAX_REQUESTS_OF_ADDRESS = 8
"""Requests of one address at once: a stranger at one address, who connects and sends nothing, keeps no provider out. A
provider sends one at a time, and a few in a minute."""
LENGTH_DIGITS = 9
"""Digits of a Content-Length that are read: Python refuses to read numbers of thousands of digits."""


@dataclass
class Refusal(Exception):
    """Why a checkpoint is not cosigned: an HTTP status and a text."""

    status: HTTPStatus
    text: str
    content_type: str = "text/plain"


class Witness:
    """Cosigns for some logs. Thread-safe."""

    def __init__(self, name: str, key: Ed25519PrivateKey, logs: Sequence[Verifier], state: Path) -> None:
        """`state` is the file of remembered checkpoints. Raises OSError, ValueError when it cannot be read."""
        self.verifier = Verifier(name, WITNESS, key.public_key().public_bytes_raw())
        self._key, self._state = key, state
        self._logs = {log.name: log for log in logs}
        self._lock = threading.Lock()
        self._seen: dict[str, dict[str, Any]] = parse_json(own_content(state), state) if state.exists() else {}

    def add_checkpoint(self, body: bytes, now: int) -> bytes:
        """The answer to a request: cosignature lines. Raises Refusal."""
        old_size, proof, note = _parse(body)
        checkpoint = note.checkpoint
        if (log := self._logs.get(checkpoint.origin)) is None:
            raise Refusal(HTTPStatus.NOT_FOUND, "this witness does not know the log")
        try:
            note.verify(log)
        except CheckpointError as error:
            raise Refusal(HTTPStatus.FORBIDDEN, str(error)) from None
        if old_size > checkpoint.size:
            raise Refusal(HTTPStatus.BAD_REQUEST, "the old size is larger than the checkpoint's")
        with self._lock:
            seen = self._seen.get(checkpoint.origin, {"size": 0, "root": ""})
            if old_size != seen["size"]:
                raise Refusal(HTTPStatus.CONFLICT, str(seen["size"]), "text/x.tlog.size")
            try:
                known = bytes.fromhex(seen["root"])
                verify_consistency(old_size, known, checkpoint.size, checkpoint.root, proof)
            except TreeError as error:
                same = old_size == checkpoint.size
                status = HTTPStatus.CONFLICT if same else HTTPStatus.UNPROCESSABLE_ENTITY
                raise Refusal(status, str(seen["size"]) if same else str(error), "text/x.tlog.size") from None
            self._remember(checkpoint.origin, {"size": checkpoint.size, "root": checkpoint.root.hex()})
        line = cosign(checkpoint, self.verifier.name, self._key, now)
        return Note(checkpoint, (line,)).encode().partition(b"\n\n")[2]

    def _remember(self, origin: str, seen: Mapping[str, Any]) -> None:
        if self._seen.get(origin) == seen:
            return
        content = {**self._seen, origin: dict(seen)}
        write_atomically(self._state, json.dumps(content).encode(), durable=True)
        self._seen = content


def serve(witness: Witness, host: str, port: int, clock: Callable[[], float] = time.monotonic) -> ThreadingHTTPServer:
    """A bound server; it answers once `serve_forever` runs. `clock` gives seconds that never jump. Raises OSError."""

    class Handler(BaseHTTPRequestHandler):
        timeout = TIMEOUT_SECONDS
        server_version, sys_version = "pharoah-witness", ""

        def setup(self) -> None:
            super().setup()
            self.rfile.close()
            self.rfile = io.BufferedReader(_Incoming(self.connection, clock))

        def do_POST(self) -> None:
            try:
                if self.path != "/add-checkpoint":
                    raise Refusal(HTTPStatus.NOT_FOUND, "POST /add-checkpoint")
                answer = self._cosign(self._body())
            except Refusal as refusal:
                self._answer(refusal.status, refusal.text.encode() + b"\n", refusal.content_type)
            else:
                self._answer(HTTPStatus.OK, answer, "text/plain")

        def _body(self) -> bytes:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or len(length) > LENGTH_DIGITS or int(length) > NOTE_BYTES_LIMIT:
                raise Refusal(HTTPStatus.BAD_REQUEST, f"a body of at most {NOTE_BYTES_LIMIT} bytes is expected")
            try:
                return self.rfile.read(int(length))
            except TimeoutError:
                raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time") from None

        def _cosign(self, body: bytes) -> bytes:
            try:
                return witness.add_checkpoint(body, int(time.time()))
            except OSError as error:
                log.error("nothing is cosigned, because the state cannot be written: %s", error)
                raise Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the witness cannot write its state") from None

        def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
            self.connection.settimeout(TIMEOUT_SECONDS)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass  # strangers could fill the log: a line for each request, and for each that is none

    return _Server((host, port), Handler)


class _Incoming(io.RawIOBase):
    """What a connection sends until a deadline: a timeout of the socket begins anew with each byte that comes."""

    def __init__(self, connection: socket.socket, clock: Callable[[], float]) -> None:
        self._connection, self._clock = connection, clock
        self._until = clock() + TIMEOUT_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises TimeoutError, and other OSErrors of a connection that has ended."""
        if (left := self._until - self._clock()) <= 0:
            raise TimeoutError("the request did not come in time")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Server(ThreadingHTTPServer):
    """A thread for each request, and a bounded number of them, in all and for each address: whoever connects and sends
    nothing has one as well."""

    def __init__(self, address: Any, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open, self._counting = Counter[str](), threading.Lock()
        """Requests that go on, by the address of their client."""

    def process_request(self, request: Any, client_address: Any) -> None:
        host = client_address[0]
        if not self._began(host):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be started
            self._end_request(host)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._end_request(client_address[0])

    def _began(self, host: str) -> bool:
        """Whether one more request of this address may go on; if so, it is counted."""
        with self._counting:
            if self._open[host] >= MAX_REQUESTS_OF_ADDRESS or self._open.total() >= MAX_REQUESTS:
                return False
            self._open[host] += 1
            return True

    def _end_request(self, host: str) -> None:
        """A request of this address is over. Addresses without any are forgotten."""
        with self._counting:
            self._open -= Counter([host])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver calls it
        """A connection that its client has ended is no line: strangers could fill the log."""
        if not isinstance(sys.exception(), OSError):
            log.exception("a request from %s could not be answered", client_address)


def _parse(body: bytes) -> tuple[int, list[bytes], Note]:
    try:
        head, _, note = body.partition(b"\n\n")
        first, *lines = head.decode().split("\n")
        word, size = first.split(" ")
        if word != "old" or not size.isdecimal() or len(lines) > PROOF_HASHES_LIMIT:
            raise ValueError(f"expected `old SIZE` and at most {PROOF_HASHES_LIMIT} hashes")
        proof = [base64.b64decode(line, validate=True) for line in lines]
        if any(len(part) != 32 for part in proof):
            raise ValueError("a hash does not have 32 bytes")
        return int(size), proof, Note.decode(note)
    except ValueError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, str(error)) from None
