"""Where a server listens: on a port with TLS, or on a Unix socket of this machine, whose callers have tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio

from pharoah_serving.errors import ProviderError
from pharoah_system.local_sockets import (
    SCHEME,
    LocalSocketError,
    ServedSocket,
    endpoint_of,
    runtime_folder,
    socket_path,
)
from pharoah_system.trusted_paths import UntrustedPathError

MAX_PORT = 65_535


class ServerCertificate(Protocol):
    """The files of a certificate."""

    def credentials(self) -> grpc.ServerCredentials:
        """What gRPC needs to serve with it. Raises ProviderError."""
        ...


class Address(Protocol):
    """A place to listen at."""

    def bind(self, server: grpc.aio.Server) -> str:
        """Bind a server; gives the endpoint by which clients reach it. Raises ProviderError that names the option."""
        ...

    def close(self) -> None:
        """Remove what binding has left behind, after the server has stopped. Nothing happens the second time."""
        ...


@dataclass(frozen=True)
class Defaults:
    """Where a server listens when nothing else is asked for."""

    socket: str
    """The name of its socket in the folder of its user."""
    port: str
    """HOST:PORT, when it has a certificate."""


def address_of(listen: str, certificate: ServerCertificate | None, defaults: Defaults, group: str = "") -> Address:
    """What `--listen` says. Members of `group` may connect to a Unix socket. Raises ProviderError."""
    if certificate is not None:
        if group:
            raise ProviderError("--socket-group is for a Unix socket; with TLS certificates decide who may call")
        return TlsPort(listen or defaults.port, certificate)
    try:
        path = socket_path(listen) if listen else runtime_folder() / defaults.socket
    except LocalSocketError as error:
        raise ProviderError(
            f"--listen {listen}: {error}. A port is served with TLS only (--tls-cert, --tls-key, --client-ca)"
        ) from None
    return UnixSocket(path, group)


class TlsPort:
    """A port, served with a certificate."""

    def __init__(self, listen: str, certificate: ServerCertificate) -> None:
        """Raises ProviderError unless `listen` is HOST:PORT."""
        self.host, _, port = listen.rpartition(":")
        if listen.startswith(SCHEME) or not port.isdecimal() or int(port) > MAX_PORT:
            raise ProviderError(f"--listen {listen}: expected HOST:PORT, with a port up to {MAX_PORT}")
        self._listen, self._certificate = listen, certificate

    def bind(self, server: grpc.aio.Server) -> str:
        try:
            bound = int(server.add_secure_port(self._listen, self._certificate.credentials()))
        except RuntimeError:
            raise ProviderError(
                f"--listen {self._listen}: cannot be bound: something else listens there, or certificate and key do "
                "not belong together"
            ) from None
        return f"{self.host}:{bound}"

    def close(self) -> None:
        """Nothing is left: the server has closed its port."""


class UnixSocket:
    """A Unix socket that this process alone serves."""

    def __init__(self, path: Path, group: str) -> None:
        self._path, self._group = path, group
        self._served: ServedSocket | None = None

    def bind(self, server: grpc.aio.Server) -> str:
        try:
            served = self._served = ServedSocket(self._path, group=self._group)
            # gRPC binds in a folder that is closed to others; the socket gets its name when it has its mode.
            server.add_insecure_port(endpoint_of(served.scratch))
            served.publish()
        except (UntrustedPathError, LocalSocketError, OSError) as error:
            raise ProviderError(f"--listen {SCHEME}{self._path}: {error}") from None
        except RuntimeError:
            raise ProviderError(f"--listen {SCHEME}{self._path}: cannot be bound") from None
        return f"{SCHEME}{served.path}"

    def close(self) -> None:
        if self._served is not None:
            self._served.close()
