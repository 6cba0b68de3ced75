"""The sidecar's channel to the provider, and what its errors mean to a tenant."""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah_protocol.channels import Access, AccessError, AccessFiles
from pharoah_protocol.tables.epoch_head import HeadError, read_public_key
from pharoah_protocol.text import sanitize_text

LARGEST_ANSWER_BYTES = 2 << 20
"""A page of the log has at most 4,096 entries of less than 200 bytes; all other answers are smaller."""


class ProviderConnection:
    """One channel, with the tenant's certificate or on loopback its token. Connects with the first call."""

    def __init__(self, settings: Settings) -> None:
        """Raises UnknownReason when the settings do not suffice to reach and verify the provider."""
        self.key = _public_key(settings.provider_key_file)
        self.timeout = settings.timeout_seconds
        files = AccessFiles(
            ca=settings.ca_file,
            certificate=settings.certificate_file,
            key=settings.certificate_key_file,
            token=settings.token_file,
        )
        try:
            access = Access.from_files(settings.endpoint, files)
        except AccessError as error:
            raise UnknownReason(str(error)) from None
        self.metadata = access.metadata
        self.channel = access.aio_channel(("grpc.max_receive_message_length", LARGEST_ANSWER_BYTES))


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


def _public_key(path: str) -> Ed25519PublicKey:
    if not path:
        raise UnknownReason(
            "no provider key is set (PHAROAH_PROVIDER_KEY_FILE); without it forged answers cannot be detected"
        )
    try:
        return read_public_key(Path(path))
    except HeadError as error:
        raise UnknownReason(f"{error}; without it forged answers cannot be detected") from None
