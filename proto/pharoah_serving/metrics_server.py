"""`GET /metrics` over HTTP/1.1, on a unix socket, or on a TCP address with a bearer token.

It is small on purpose: one snapshot a minute, one request per connection, a few connections at once with little time
each, and a bounded number of new connections per second. Whoever floods it makes other readers wait, and nobody else.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pharoah_serving.errors import ProviderError
from pharoah_system.trusted_paths import make_folder

STEP_SECONDS = 60.0
"""How often the snapshot changes."""
CONNECTION_SECONDS = 2.0
"""What one connection may take, from its acceptance to the end of the answer."""
MAX_CONNECTIONS = 16
"""Connections that are answered at once; as many more wait in the system's queue."""
CONNECTIONS_PER_SECOND = 20.0
MAX_REQUEST_BYTES = 4096
MAX_TOKEN_BYTES = 4096
UNIX = "unix:"


@dataclass(frozen=True)
class MetricsAddress:
    """Where metrics are served, and to whom."""

    text: str
    """`unix:PATH` or `HOST:PORT`."""
    token_file: Path | None = None
    """Readers must send its content as a bearer token."""
    public: bool = False
    """Whether an address beyond this machine is meant."""

    def check(self) -> None:
        """Raises ProviderError for an address beyond this machine that was not asked for as such."""
        if self.text.startswith(UNIX):
            return
        host, _, port = self.text.rpartition(":")
        if not port.isdecimal() or int(port) > 65_535:
            raise ProviderError(f"--http {self.text}: expected unix:PATH or HOST:PORT")
        if not _is_loopback(host) and not self.public:
            raise ProviderError(
                f"--http {self.text}: others than this machine could read it; use a unix socket or a loopback "
                f"address, or say --metrics-public"
            )


@dataclass
class MetricsServer:
    """Serves snapshots of `read()`. Belongs to the event loop."""

    read: Callable[[], bytes]
    token: bytes = b""
    _snapshot: bytes = b""
    _inside: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONNECTIONS))
    _answering: set[asyncio.Task[None]] = field(default_factory=set)

    def step(self) -> None:
        """Take the next snapshot."""
        self._snapshot = self.read()

    async def _step_each_minute(self) -> None:
        while True:
            self.step()
            await asyncio.sleep(STEP_SECONDS)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._inside.acquire()
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:  # out of file descriptors: the next second may have some
                self._inside.release()
                await asyncio.sleep(1.0)
                continue
            except BaseException:
                self._inside.release()
                raise
            task = asyncio.create_task(self._answer(connection))
            self._answering.add(task)
            task.add_done_callback(self._finish_answer)
            await asyncio.sleep(1 / CONNECTIONS_PER_SECOND)

    def _finish_answer(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._inside.release()

    async def _answer(self, connection: socket.socket) -> None:
        """Read one request and answer it, within CONNECTION_SECONDS."""
        loop = asyncio.get_running_loop()
        with connection, suppress(OSError, TimeoutError):
            connection.setblocking(False)
            async with asyncio.timeout(CONNECTION_SECONDS):
                request = b""
                while b"\r\n\r\n" not in request and len(request) < MAX_REQUEST_BYTES:
                    if not (more := await loop.sock_recv(connection, MAX_REQUEST_BYTES)):
                        return
                    request += more
                await loop.sock_sendall(connection, self._response(request))

    def _response(self, request: bytes) -> bytes:
        head, *lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
        method, path, *_ = [*head.split(b" "), b"", b""]
        given = next((line[14:].strip() for line in lines if line[:14].lower() == b"authorization:"), b"")
        if self.token and not hmac.compare_digest(given.removeprefix(b"Bearer "), self.token):
            return _http(b"401 Unauthorized", b"a bearer token is needed\n")
        if method != b"GET" or path.partition(b"?")[0] != b"/metrics":
            return _http(b"404 Not Found", b"GET /metrics\n")
        return _http(b"200 OK", self._snapshot)


@asynccontextmanager
async def serving_metrics(read: Callable[[], bytes], address: MetricsAddress) -> AsyncIterator[str]:
    """Serve until the end of the context; where, with the port in place of 0. Raises ProviderError."""
    address.check()
    server = MetricsServer(read, _token(address.token_file) if address.token_file else b"")
    listening = _bind(address.text)
    server.step()
    tasks = [asyncio.create_task(server._accept(listening)), asyncio.create_task(server._step_each_minute())]
    try:
        yield _name(address.text, listening)
    finally:
        tasks += server._answering
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        listening.close()
        if address.text.startswith(UNIX):
            Path(address.text.removeprefix(UNIX)).unlink(missing_ok=True)


def _bind(text: str) -> socket.socket:
    """A listening socket. Raises ProviderError that names the option."""
    try:
        if text.startswith(UNIX):
            path = _private(Path(text.removeprefix(UNIX)))
            listening = socket.socket(socket.AF_UNIX)
            target: str | tuple[str, int] = str(path)
        else:
            host, _, port = text.rpartition(":")
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.socket(family)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            target = (host.strip("[]"), int(port))
    except OSError as error:
        raise ProviderError(f"--http {text}: {error.strerror or error}") from None
    try:
        listening.bind(target)
        listening.listen(MAX_CONNECTIONS)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ProviderError(f"--http {text}: {error.strerror or error}") from None
    return listening


def _private(path: Path) -> Path:
    """The path of a socket that may be made: in a folder that is ours alone. A socket from before is removed.

    Raises OSError, ProviderError.
    """
    make_folder(path.parent)
    folder = path.parent.lstat()
    if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != os.geteuid() or folder.st_mode & 0o077:
        raise ProviderError(f"--http {UNIX}{path}: its folder must be yours alone; chmod 700 {path.parent}")
    if path.is_socket():
        path.unlink()
    return path


def _name(text: str, listening: socket.socket) -> str:
    if text.startswith(UNIX):
        return text
    return f"http://{text.rpartition(':')[0]}:{listening.getsockname()[1]}/metrics"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _token(file: Path) -> bytes:
    """Raises ProviderError that names the file."""
    try:
        mode, content = file.stat().st_mode, file.read_bytes()[:MAX_TOKEN_BYTES].strip()
    except OSError as error:
        raise ProviderError(f"--http-token {file}: {error.strerror}") from None
    if mode & 0o077:
        raise ProviderError(f"--http-token {file}: others can read it; chmod 600 {file}")
    if len(content) < 16:
        raise ProviderError(f"--http-token {file}: shorter than 16 characters")
    return content


def _http(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 " + status + b"\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
    return head + b"Content-Length: " + str(len(body)).encode() + b"\r\nConnection: close\r\n\r\n" + body
