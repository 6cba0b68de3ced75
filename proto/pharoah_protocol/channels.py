"""Channels to a gRPC peer: who we are there, who the peer must be, gRPC's options, and which calls gRPC may repeat.

All parties may share one authority. So the name that is checked in a server's certificate is that of its role, not that
of its host: an auditor's certificate is not accepted as that of a provider, wherever it is shown.

There are two kinds. With a certificate a channel is TLS to a port. With a token it goes to a Unix socket of this
machine that only trusted users can serve: a token never goes to anything else. Everybody who sends a token (tenant,
agent, operator) gets it from `Access.metadata`. The caller sets the deadline of each call; attempts that gRPC repeats
share it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio

from pharoah_protocol.v1 import service
from pharoah_system.file_stamps import FileStamp, stamp_of
from pharoah_system.local_sockets import SCHEME, CheckedSocket, LocalSocketError, endpoint_of, socket_path
from pharoah_system.trusted_paths import UntrustedPathError, private_content

Option = tuple[str, Any]
MIN_TOKEN_CHARACTERS = 32
"""A UUID without its hyphens has as many (RFC 9562): 122 random bits. What Pharoah makes has 43, of 256 bits."""
REPEATABLE_METHODS = {
    # GetEpoch only reads. Evaluate and Lookup carry a request_id: the provider answers a repeated request with the
    # same bytes and takes the quota once. GetOffer takes one of the day's offers each time. GetTable is a stream.
    # Decide sends one bit once; losing it costs nothing.
    "Exchange": ("GetEpoch", "Evaluate", "Lookup"),
    # A batch of reports is stored once, and the first end state stands. JoinRun starts a new attempt each time. Reveal
    # is sent by a user, who sees the error. AskValidation takes one of the day's quota. A result is answered once: sent
    # again it is rejected. WatchAlerts and WatchOrders are streams, which the sidecar opens again itself.
    "Runs": ("Report", "EndRun"),
    # The key is read only. An evaluation takes one of the day's pseudonyms and has no request_id.
    "Pseudonyms": ("GetPseudonymKey",),
    # Listings only read. All others change something or run for long.
    "Operator": ("List",),
    # The agent's only call is a stream, which the agent opens again itself.
    "Agent": (),
}
"""By service: methods that may reach the provider twice with the effect of one call."""
RETRY_POLICY = {
    "maxAttempts": 4,
    "initialBackoff": "0.1s",
    "maxBackoff": "0.4s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
"""gRPC draws each pause within 20 % of its length: 0.1, 0.2 and 0.4 s add up to at most 0.84 s. More than half of
the time that a tenant waits by default (`timeout_seconds`, 2 s) is left, so a provider that is down is reported as not
reachable, and not as too slow. UNAVAILABLE is the only status that means that the same call may succeed a moment
later."""
COMMON_OPTIONS: tuple[Option, ...] = (
    # Proxies from the environment are for browsers: they would see who talks to whom.
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),  # the policy is ours, never that of a DNS record
    # gRPC's own first pause between two attempts to connect, 1 s, is half of the time that a tenant waits by default.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5000),
)

KEEPALIVE: Option = ("grpc.keepalive_time_ms", 60_000)
"""For connections that stay open: a server that is gone without a word is noticed within 80 s (gRPC waits 20 s for the
answer to its ping). Our servers allow pings no more often than that."""


class ServerRole(StrEnum):
    """What a server is, as its certificate states it."""

    PROVIDER = "provider"
    """Serves verdicts, runs, agents and operators."""
    AUDITOR = "auditor"
    """Serves the second pseudonym key."""

    @property
    def server_name(self) -> str:
        """The DNS name that the certificate of such a server has. The domain `internal` is reserved for private use."""
        return f"{self}.pharoah.internal"


class AccessError(ValueError):
    """Settings that do not show how to reach a peer safely; the message names the setting or the file."""


class SettingNames(NamedTuple):
    """Names of the settings that hold the files of a certificate."""

    ca: str = "PHAROAH_CA_FILE"
    certificate: str = "PHAROAH_CERT_FILE"
    key: str = "PHAROAH_CERT_KEY_FILE"


DEFAULT_NAMES = SettingNames()


@dataclass(frozen=True)
class AccessFiles:
    """Files of our certificate, or of our token; and how the settings are called, for error messages."""

    ca: str | Path | None = None
    """Certificates of the authority that signs the peer's certificate (PEM)."""
    certificate: str | Path | None = None
    key: str | Path | None = None
    token: str | Path | None = None
    server: ServerRole = ServerRole.PROVIDER
    """What the peer must be."""
    setting_names: SettingNames = DEFAULT_NAMES
    """Names of the first three settings."""

    @property
    def name_a_certificate(self) -> bool:
        """Whether any file of a certificate is set."""
        return any((self.ca, self.certificate, self.key))

    def stamps(self) -> tuple[FileStamp | None, ...]:
        """What changes when one of the files is written or replaced; None stands for a file that cannot be found."""
        return tuple(stamp_of(Path(path)) for path in (self.ca, self.certificate, self.key, self.token) if path)


class _Origin(NamedTuple):
    """What an access was read from."""

    files: AccessFiles
    service_users: str
    stamps: tuple[FileStamp | None, ...]
    """What the files were before they were read: a change meanwhile is then seen later."""


@dataclass(frozen=True)
class Access:
    """An address, and who we are there."""

    endpoint: str
    credentials: grpc.ChannelCredentials | None = None
    server: ServerRole = ServerRole.PROVIDER
    """What the peer must be, by its certificate."""
    _token: str = field(default="", repr=False)
    _socket: CheckedSocket | None = None
    _origin: _Origin | None = field(default=None, repr=False)

    @classmethod
    def from_files(cls, endpoint: str, files: AccessFiles, service_users: str = "") -> Access:
        """With the certificate when its files are set, else through a Unix socket with the token. Raises AccessError.

        `service_users` may serve the socket besides root and us.
        """
        origin = _Origin(files, service_users, files.stamps())
        ca, certificate, key = files.setting_names
        if files.name_a_certificate:
            if not (files.ca and files.certificate and files.key):
                raise AccessError(f"{ca}, {certificate} and {key} belong together")
            if endpoint.startswith(SCHEME):
                raise AccessError(f"endpoint {endpoint}: a certificate is for host:port; a Unix socket takes a token")
            return cls(endpoint, _credentials(files.ca, files.certificate, files.key), files.server, _origin=origin)
        if not endpoint.startswith(SCHEME):
            raise AccessError(
                f"endpoint {endpoint}: host:port takes a certificate ({ca}, {certificate}, {key}); a token goes to a "
                "Unix socket of this machine only (unix:/path)"
            )
        return cls(endpoint, None, files.server, _token(files.token), _check(endpoint, service_users), origin)

    def renew(self) -> Access:
        """The same access with its files as they are now; this one itself while none of them has changed.

        An open channel goes on with what it was opened with. Raises AccessError for files that cannot be used; what was
        read before stays as it is then.
        """
        if self._origin is None or self._origin.files.stamps() == self._origin.stamps:
            return self
        return Access.from_files(self.endpoint, self._origin.files, self._origin.service_users)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """To pass with every call. Raises AccessError when others could have taken the place of the socket."""
        if not self._token:
            return ()
        if self._socket is None:
            raise AccessError(f"endpoint {self.endpoint}: a token goes to a Unix socket only")
        try:
            self._socket.check()
        except (UntrustedPathError, OSError) as error:
            raise AccessError(f"endpoint {self.endpoint}: {error}") from None
        return (("authorization", f"Bearer {self._token}"),)

    def channel(self, *options: Option) -> grpc.Channel:
        """A blocking channel; it connects with the first call. `options` go before the common ones."""
        if self._socket is not None:
            return grpc.insecure_channel(endpoint_of(self._socket.path), _options(options))
        return grpc.secure_channel(self.endpoint, self._proven(), _options((*options, self._checked_name)))

    def aio_channel(self, *options: Option) -> grpc.aio.Channel:
        """The same for asyncio."""
        if self._socket is not None:
            return grpc.aio.insecure_channel(endpoint_of(self._socket.path), _options(options))
        return grpc.aio.secure_channel(self.endpoint, self._proven(), _options((*options, self._checked_name)))

    def _proven(self) -> grpc.ChannelCredentials:
        if self.credentials is None:
            raise AccessError(f"endpoint {self.endpoint}: there is no certificate for it")
        return self.credentials

    @property
    def _checked_name(self) -> Option:
        """gRPC compares this name, instead of the host's, with the names in the certificate."""
        return ("grpc.ssl_target_name_override", self.server.server_name)


def service_config() -> str:
    """gRPC's service config (JSON) with the retry policy of every repeatable method."""
    methods = [
        {"service": service(name).full_name, "method": method}
        for name, repeatable in REPEATABLE_METHODS.items()
        for method in repeatable
    ]
    return json.dumps({"methodConfig": [{"name": methods, "retryPolicy": RETRY_POLICY}]})


def _options(options: Sequence[Option]) -> list[Option]:
    return [*options, *COMMON_OPTIONS, ("grpc.service_config", service_config())]


def _credentials(ca: str | Path, certificate: str | Path, key: str | Path) -> grpc.ChannelCredentials:
    paths = [Path(path) for path in (ca, key, certificate)]
    try:
        contents = [path.read_bytes() for path in paths]
    except OSError as error:
        raise AccessError(f"certificate file {error.filename}: {error.strerror}") from None
    for path, content in zip(paths, contents, strict=True):
        if not content:  # as while it is being written: gRPC would end this process when it connects
            raise AccessError(f"certificate file {path}: it is empty")
    return grpc.ssl_channel_credentials(*contents)


def _check(endpoint: str, service_users: str) -> CheckedSocket:
    try:
        return CheckedSocket(socket_path(endpoint), service_users)
    except LocalSocketError as error:
        raise AccessError(str(error)) from None
    except (UntrustedPathError, OSError) as error:
        raise AccessError(f"endpoint {endpoint}: {error}") from None


def _token(path: str | Path | None) -> str:
    """The token of a private file. Raises AccessError that never contains what the file holds."""
    if not path:
        return ""
    try:
        token = private_content(Path(path)).decode().strip()
    except OSError as error:
        raise AccessError(f"token file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AccessError(f"token file {path}: not a token") from None
    except UntrustedPathError as error:
        raise AccessError(f"token file: {error}") from None
    if not token.isascii() or not token.isprintable():
        raise AccessError(f"token file {path}: not a token")
    if len(token) < MIN_TOKEN_CHARACTERS:
        raise AccessError(f"token file {path}: a token has at least {MIN_TOKEN_CHARACTERS} characters")
    return token
