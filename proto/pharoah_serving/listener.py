"""The server: limits of messages and connections, every servicer behind the call guard."""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio

from pharoah_protocol.rpc import handlers
from pharoah_protocol.v1 import service
from pharoah_serving.addresses import Address
from pharoah_serving.call_guard import CallGuard
from pharoah_serving.errors import ProviderError
from pharoah_serving.guarded_call import MAX_MESSAGE_BYTES
from pharoah_serving.open_calls import UnknownMethods

log = logging.getLogger("pharoah.provider.services")

STREAMS_OF_A_CONNECTION = 8
"""Calls of one connection at once, those included whose client has cancelled them and whose handler has not ended. A
sidecar, which has a connection for each run, opens at most six: its watches for alerts and for orders, a result of a
micro-benchmark, and two calls of a verdict beside a report. RFC 9113 recommends a hundred for the sake of parallel
work; that would be the work of a flood here (docs/adr/0023-nobody-uses-the-provider-up.md)."""
MAX_PENDING_CALLS = 1 << 16
"""Calls that gRPC has received and the event loop has not seen: eight thousand connections full of them."""
OPTIONS = [
    ("grpc.max_metadata_size", 8192),
    ("grpc.max_concurrent_streams", STREAMS_OF_A_CONNECTION),
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.max_connection_age_ms", 1_800_000),
    ("grpc.max_connection_age_grace_ms", 30_000),
    # A machine without power says nothing: agents ask their provider as often as it asks them.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 60_000),
    ("grpc.http2.max_ping_strikes", 2),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.so_reuseport", 0),
    # By default gRPC refuses calls at random, whoever makes them, when more than a thousand wait to be looked at.
    ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", 2 * MAX_PENDING_CALLS),
]
SPARE_FILES = 512
"""File descriptors that connections leave to the database, the audit log and the rest of the process."""
SWITCH_SECONDS = 0.0005
"""How long a thread of the provider may compute in Python before the event loop gets its turn; Python's default, 5 ms,
is a large part of what a verdict takes, and a verdict needs several such turns."""


@dataclass(frozen=True)
class Tls:
    """Files of a provider's certificate, its key, and the bundle that signs its clients' certificates (all PEM)."""

    certificate: Path
    key: Path
    clients: Path

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that are read again when a file changes, without a restart. Raises ProviderError naming the
        file."""
        files = _Renewed(self)
        return grpc.dynamic_ssl_server_credentials(files.first, files.look, require_client_authentication=True)

    def configuration(self) -> Any:
        """What gRPC serves with. Raises ProviderError naming the file."""
        key, certificate, clients = (_read(path) for path in (self.key, self.certificate, self.clients))
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=clients)

    def stamps(self) -> tuple[int, ...]:
        """What changes when a file is written."""
        return tuple(path.stat().st_mtime_ns for path in (self.key, self.certificate, self.clients) if path.exists())


class _Renewed:
    """The files of a certificate, read again by the first connection after a change."""

    def __init__(self, files: Tls) -> None:
        """Raises ProviderError naming the file."""
        self._files, self._said = files, ""
        self._seen = files.stamps()  # first: a change while the files are read is then seen later
        self.first = files.configuration()

    def look(self) -> Any:
        """The configuration after a change; None without one, and while a file cannot be read. That is tried again: a
        file that only gets other permissions has the same stamp afterwards."""
        if (stamps := self._files.stamps()) == self._seen:
            return None
        try:
            changed = self._files.configuration()
        except ProviderError as error:
            if str(error) != self._said:
                log.error("the certificate from before stays in force: %s", error)
            self._said = str(error)
            return None
        self._seen, self._said = stamps, ""
        return changed


class BoundServer(NamedTuple):
    """A server with a bound address; it has not started yet."""

    server: grpc.aio.Server
    endpoint: str
    """Where clients reach it."""


def prepare_process() -> None:
    """Allow as many connections as the system permits (the usual soft limit is for interactive programs), and give the
    event loop its turn soon."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.setswitchinterval(SWITCH_SECONDS)


def listen(
    servicers: dict[str, Any],
    guard: CallGuard,
    address: Address,
    *open_services: grpc.GenericRpcHandler[Any, Any],
    largest_messages: Mapping[str, int] | None = None,
) -> BoundServer:
    """Bind a server; `servicers` maps the short name of a service to its servicer. `open_services` need no caller.
    `largest_messages` maps the name of a method, such as `Runs.Reveal`, to the bytes of its longest request, where
    these are more than MAX_MESSAGE_BYTES; gRPC itself knows one limit for all methods.

    There is no limit for all calls together: whoever reached it would lock the others out. Limits are per connection,
    per address and per caller. Raises ProviderError when the address cannot be bound, AttributeError when a servicer
    lacks a method.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = ("grpc.max_allowed_incoming_connections", max(SPARE_FILES, min(files, 1 << 20) - SPARE_FILES))
    largest = largest_messages or {}
    longest = max(largest.values(), default=MAX_MESSAGE_BYTES)
    server = grpc.aio.server(options=[*OPTIONS, ("grpc.max_receive_message_length", longest), connections])
    generic = []
    for name, servicer in servicers.items():
        guarded = {
            method.name: guard.guard(
                method, getattr(servicer, method.name), largest.get(f"{name}.{method.name}", MAX_MESSAGE_BYTES)
            )
            for method in service(name).methods
        }
        generic.append(handlers(name, guarded))
    server.add_generic_rpc_handlers((*generic, *open_services, UnknownMethods(guard.peers)))
    return BoundServer(server=server, endpoint=address.bind(server))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProviderError(f"{path}: {error.strerror}") from None
