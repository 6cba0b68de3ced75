"""The sidecar's channel to the provider, and what its errors mean to a tenant."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import grpc
import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah_protocol.tables.epoch_head import HeadError, read_public_key
from pharoah_protocol.text import sanitize_text

OPTIONS = [
    ("grpc.max_receive_message_length", 2 << 20),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5000),
]


class ProviderConnection:
    """One channel, with the tenant's certificate or on loopback its token. Connects with the first call."""

    def __init__(self, settings: Settings) -> None:
        """Raises UnknownReason when the settings do not say how to reach and recognise the provider."""
        self.key = _public_key(settings.provider_key_file)
        self.timeout = settings.timeout_seconds
        self.metadata: tuple[tuple[str, str], ...] = ()
        files = (settings.ca_file, settings.certificate_file, settings.certificate_key_file)
        if any(files):
            self.channel = grpc.aio.secure_channel(settings.endpoint, _credentials(*files), OPTIONS)
            return
        host = urlsplit(f"//{settings.endpoint}").hostname
        if host not in ("127.0.0.1", "localhost", "::1"):
            raise UnknownReason(
                f"endpoint {settings.endpoint}: a token travels unencrypted to loopback only; elsewhere a certificate "
                "is needed (PHAROAH_CA_FILE, PHAROAH_CERT_FILE, PHAROAH_CERT_KEY_FILE)"
            )
        self.metadata = (("authorization", f"Bearer {_token(settings.token_file)}"),)
        self.channel = grpc.aio.insecure_channel(settings.endpoint, OPTIONS)


def reason(error: grpc.aio.AioRpcError) -> str:
    """What a failed call means, in words for the verdict."""
    details = sanitize_text(error.details() or "", 200)
    meanings = {
        grpc.StatusCode.UNAVAILABLE: "the provider cannot be reached, or does not accept our certificate",
        grpc.StatusCode.DEADLINE_EXCEEDED: "the provider did not answer in time",
        grpc.StatusCode.UNAUTHENTICATED: "the provider does not know this tenant",
        grpc.StatusCode.PERMISSION_DENIED: f"the provider refuses: {details}",
    }
    code = error.code()
    return meanings.get(code, f"the provider answered {code.name}: {details}")


def _credentials(ca: str, certificate: str, key: str) -> grpc.ChannelCredentials:
    if not all((ca, certificate, key)):
        raise UnknownReason("PHAROAH_CA_FILE, PHAROAH_CERT_FILE and PHAROAH_CERT_KEY_FILE belong together")
    try:
        contents = [Path(path).read_bytes() for path in (ca, key, certificate)]
    except OSError as error:
        raise UnknownReason(f"certificate file {error.filename}: {error.strerror}") from None
    return grpc.ssl_channel_credentials(*contents)


def _token(path: str) -> str:
    try:
        token = Path(path).read_text().strip() if path else ""
    except OSError as error:
        raise UnknownReason(f"token file {path}: {error.strerror}") from None
    if not token.isascii() or not token.isprintable():
        raise UnknownReason(f"token file {path}: not a token")
    return token


def _public_key(path: str) -> Ed25519PublicKey:
    if not path:
        raise UnknownReason(
            "no provider key is set (PHAROAH_PROVIDER_KEY_FILE); without it nobody can tell the provider's answers "
            "from forged ones"
        )
    try:
        return read_public_key(Path(path))
    except HeadError as error:
        raise UnknownReason(f"{error}; without it nobody can tell the provider's answers from forged ones") from None
