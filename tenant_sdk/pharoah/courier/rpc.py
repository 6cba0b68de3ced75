"""The courier's channel to the provider, and what its errors mean to a tenant."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import grpc
import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah._errors import UnknownReason
from pharoah._settings import Settings

LARGEST_MESSAGE = 2 << 20


class Provider:
    """One channel with the tenant's token on it. Nothing is connected before the first call."""

    def __init__(self, settings: Settings) -> None:
        """Raises UnknownReason when the settings do not say how to reach and recognise the provider."""
        host = urlsplit(f"//{settings.endpoint}").hostname
        if host not in ("127.0.0.1", "localhost", "::1"):
            raise UnknownReason(f"endpoint {settings.endpoint}: a token travels unencrypted to loopback only")
        self.key = _public_key(settings.provider_key_file)
        self.metadata = (("authorization", f"Bearer {_token(settings.token_file)}"),)
        self.timeout = settings.timeout_seconds
        options = [
            ("grpc.max_receive_message_length", LARGEST_MESSAGE),
            ("grpc.enable_http_proxy", 0),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 5000),
        ]
        self.channel = grpc.aio.insecure_channel(settings.endpoint, options)


def reason(error: grpc.aio.AioRpcError) -> str:
    """What a failed call means, in words for the verdict."""
    meanings = {
        grpc.StatusCode.UNAVAILABLE: "the provider cannot be reached",
        grpc.StatusCode.DEADLINE_EXCEEDED: "the provider did not answer in time",
        grpc.StatusCode.UNAUTHENTICATED: "the provider does not know this tenant's token",
        grpc.StatusCode.PERMISSION_DENIED: "the provider refuses this tenant",
    }
    code = error.code()
    return meanings.get(code, f"the provider answered {code.name}: {(error.details() or '')[:200]}")


def _token(path: str) -> str:
    try:
        token = Path(path).read_text().strip() if path else ""
    except OSError as error:
        raise UnknownReason(f"token file {path}: {error.strerror}") from None
    if not token.isascii() or not token.isprintable():
        raise UnknownReason(f"token file {path}: not a token")
    return token


def _public_key(path: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(Path(path).read_text().strip()))
    except (OSError, ValueError) as error:
        raise UnknownReason(
            f"provider key file {path!r}: {error}; without it nobody can tell the provider's answers from forged ones"
        ) from None
