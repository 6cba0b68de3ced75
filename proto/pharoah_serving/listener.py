"""The listening port: TLS or loopback, limits of messages and connections, every servicer behind the call guard."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio

from pharoah_protocol.rpc import handlers
from pharoah_protocol.v1 import service
from pharoah_serving.call_guard import CallGuard
from pharoah_serving.errors import ProviderError

LARGEST_MESSAGE_BYTES = 1 << 20
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.max_metadata_size", 8192),
    ("grpc.max_concurrent_streams", 512),
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.max_connection_age_ms", 1_800_000),
    ("grpc.max_connection_age_grace_ms", 30_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 60_000),
    ("grpc.http2.max_ping_strikes", 2),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.so_reuseport", 0),
]
CALLS_AT_ONCE = 16_384
"""All callers together. Eight organisations can use all their streams (2,048 each) before others are refused."""


@dataclass(frozen=True)
class Tls:
    """Files of a provider's certificate, its key, and the bundle that signs its clients' certificates (all PEM)."""

    certificate: Path
    key: Path
    clients: Path

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that are read again when a file changes, without a restart. Raises ProviderError naming the
        file."""
        first = self._configuration()
        seen = [self._stamps()]

        def renewed() -> Any:
            if (stamps := self._stamps()) == seen[0]:
                return None
            seen[0] = stamps
            return self._configuration()

        return grpc.dynamic_ssl_server_credentials(first, renewed, require_client_authentication=True)

    def _configuration(self) -> Any:
        key, certificate, clients = (_read(path) for path in (self.key, self.certificate, self.clients))
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=clients)

    def _stamps(self) -> tuple[int, ...]:
        return tuple(path.stat().st_mtime_ns for path in (self.key, self.certificate, self.clients) if path.exists())


class BoundServer(NamedTuple):
    """A server with a bound address; it has not started yet."""

    server: grpc.aio.Server
    port: int


def raise_descriptor_limit() -> None:
    """Allow as many connections as the system permits: the usual soft limit is for interactive programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def listen(servicers: dict[str, Any], guard: CallGuard, address: str, tls: Tls | None) -> BoundServer:
    """Bind a server; `servicers` maps the short name of a service to its servicer.

    Raises ProviderError when the address cannot be bound, AttributeError when a servicer lacks a method.
    """
    server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=CALLS_AT_ONCE)
    generic = []
    for name, servicer in servicers.items():
        methods = service(name).methods
        guarded = {method.name: guard.guard(method, getattr(servicer, method.name)) for method in methods}
        generic.append(handlers(name, guarded))
    server.add_generic_rpc_handlers(tuple(generic))
    try:
        if tls is not None:
            return BoundServer(server=server, port=int(server.add_secure_port(address, tls.credentials())))
        return BoundServer(server=server, port=int(server.add_insecure_port(address)))
    except RuntimeError:
        also = ", or certificate and key do not belong together" if tls else ""
        raise ProviderError(f"--listen {address}: cannot be bound: something else listens there{also}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProviderError(f"{path}: {error.strerror}") from None
