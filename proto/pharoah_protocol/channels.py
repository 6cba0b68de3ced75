"""Channels to a gRPC peer: who we are there, gRPC's options, and which calls gRPC may repeat.

Without certificates a channel is in plain text, so it is made to loopback only. The caller sets the deadline of each
call; attempts that gRPC repeats share it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc
import grpc.aio

from pharoah_protocol.v1 import service

Option = tuple[str, Any]
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")

REPEATABLE_METHODS = {
    # GetEpoch only reads. Evaluate and Lookup carry a request_id: the provider answers a repeated request with the
    # same bytes and takes the quota once. GetOffer takes one of the day's offers each time. GetTable is a stream.
    # Decide sends one bit once; losing it costs nothing.
    "Exchange": ("GetEpoch", "Evaluate", "Lookup"),
    # A batch of reports is stored once, and the first end state stands. JoinRun starts a new attempt each time. Reveal
    # is sent by a user, who sees the error. WatchAlerts is a stream, which the sidecar opens again itself.
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
"""gRPC draws each pause within 20 % of its length: 0.1, 0.2 and 0.4 s add up to at most 0.84 s. More than half of a
tenant's default deadline (`timeout_seconds`, 2 s) is left, so a provider that is down is reported as not reachable, and
not as too slow. UNAVAILABLE is the only status that means that the same call may succeed a moment later."""
COMMON_OPTIONS: tuple[Option, ...] = (
    # Proxies from the environment are for browsers: they would see who talks to whom.
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),  # the policy is ours, never that of a DNS record
    # gRPC's own first pause between two attempts to connect, 1 s, is half of a tenant's default deadline.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5000),
)


class AccessError(ValueError):
    """Settings that do not show how to reach a peer; the message names the setting or the file."""


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
    setting_names: SettingNames = DEFAULT_NAMES
    """Names of the first three settings."""


@dataclass(frozen=True)
class Access:
    """An address, and who we are there."""

    endpoint: str
    token: str = field(default="", repr=False)
    credentials: grpc.ChannelCredentials | None = None

    @classmethod
    def from_files(cls, endpoint: str, files: AccessFiles) -> Access:
        """With the certificate when its files are set, else on loopback with the token. Raises AccessError."""
        ca, certificate, key = files.setting_names
        if any((files.ca, files.certificate, files.key)):
            if not (files.ca and files.certificate and files.key):
                raise AccessError(f"{ca}, {certificate} and {key} belong together")
            return cls(endpoint, credentials=_credentials(files.ca, files.certificate, files.key))
        if not is_loopback(endpoint):
            raise AccessError(
                f"endpoint {endpoint}: a token travels unencrypted to loopback only; elsewhere a certificate is needed "
                f"({ca}, {certificate}, {key})"
            )
        return cls(endpoint, _token(files.token))

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """To pass with every call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def channel(self, *options: Option) -> grpc.Channel:
        """A blocking channel; it connects with the first call. `options` go before the common ones."""
        if self.credentials is None:
            return grpc.insecure_channel(self.endpoint, _options(options))
        return grpc.secure_channel(self.endpoint, self.credentials, _options(options))

    def aio_channel(self, *options: Option) -> grpc.aio.Channel:
        """The same for asyncio."""
        if self.credentials is None:
            return grpc.aio.insecure_channel(self.endpoint, _options(options))
        return grpc.aio.secure_channel(self.endpoint, self.credentials, _options(options))


def is_loopback(endpoint: str) -> bool:
    """Whether `HOST:PORT` is on this machine."""
    return urlsplit(f"//{endpoint}").hostname in LOOPBACK_HOSTS


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
    try:
        contents = [Path(path).read_bytes() for path in (ca, key, certificate)]
    except OSError as error:
        raise AccessError(f"certificate file {error.filename}: {error.strerror}") from None
    return grpc.ssl_channel_credentials(*contents)


def _token(path: str | Path | None) -> str:
    if not path:
        return ""
    try:
        token = Path(path).read_text().strip()
    except OSError as error:
        raise AccessError(f"token file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AccessError(f"token file {path}: not a token") from None
    if not token.isascii() or not token.isprintable():
        raise AccessError(f"token file {path}: not a token")
    return token
