"""The sidecar's channel to the provider, and what its errors mean to a tenant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.sidecar.renewed_channel import RenewedChannel
from pharoah_protocol.channels import KEEPALIVE, Access, AccessError, AccessFiles, ServerRole
from pharoah_protocol.tables.epoch_head import HeadError, read_public_key
from pharoah_system.text import sanitize_text

MAX_ANSWER_BYTES = 2 << 20
"""A page of the log has at most 4,096 entries of less than 200 bytes; all other answers are smaller."""
STATED_DEADLINE_SECONDS = 120.0
"""The deadline that every call states in its header. How long this machine really waits is the user's setting, and the
header must not carry it. A provider works on one call for at most 30 s."""
CALL_DEADLINE_SECONDS = STATED_DEADLINE_SECONDS - 0.5
"""What gRPC is given: it writes the time that is left, above 100 s in whole seconds and rounded up, so that a
connection that takes up to half a second to open does not change the header."""


class ProviderConnection:
    """One channel, with the tenant's certificate or on a Unix socket its token. Connects with the first call.

    After a call that has failed, certificate and token are read again if their files have changed.
    """

    def __init__(self, settings: Settings, server: ServerRole = ServerRole.PROVIDER) -> None:
        """`server` is what the peer must be.

        Raises UnknownReason when the settings do not suffice to reach and verify the provider.
        """
        self.key = _public_key(settings.provider_key_file)
        self.timeout = settings.timeout_seconds
        files = AccessFiles(
            ca=settings.ca_file,
            certificate=settings.certificate_file,
            key=settings.certificate_key_file,
            token=settings.token_file,
            server=server,
        )
        try:
            access = Access.from_files(settings.endpoint, files, settings.service_users)
        except AccessError as error:
            raise UnknownReason(str(error)) from None
        largest = ("grpc.max_receive_message_length", MAX_ANSWER_BYTES)
        self.channel = RenewedChannel(access, largest, KEEPALIVE)

    @property
    def metadata(self) -> Sequence[Any]:
        """To pass with every call. Raises AioRpcError: a provider whose socket others could have replaced is one that
        cannot be reached."""
        try:
            return self.channel.access.metadata
        except AccessError as error:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, nothing, nothing, details=str(error), debug_error_string=None
            ) from None

    async def call(self, method: Any, request: Any) -> Any:
        """One call of a stub's method. Raises AioRpcError, also when the user's time for one call is over."""
        try:
            async with self.waiting(self.timeout):
                return await method(request, timeout=CALL_DEADLINE_SECONDS, metadata=self.metadata)
        except grpc.aio.AioRpcError:
            self.channel.look()
            raise

    @asynccontextmanager
    async def waiting(self, seconds: float) -> AsyncIterator[None]:
        """Give up what is done inside after so many seconds. Raises AioRpcError, as for a deadline that has passed."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.DEADLINE_EXCEEDED, nothing, nothing, f"no answer within {seconds:g} s", ""
            ) from None


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
