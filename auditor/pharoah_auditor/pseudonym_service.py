"""The service of the second pseudonym key: the schema and the call guard of the provider, with the auditor's key."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pharoah_protocol.voprf import libsodium
from pharoah_serving.audit_log import AuditLog
from pharoah_serving.call_guard import CallGuard
from pharoah_serving.errors import ProviderError
from pharoah_serving.identity import Certificates, Tokens
from pharoah_serving.keys import open_keys
from pharoah_serving.listener import LOOPBACK, Tls, listen
from pharoah_serving.metrics import Metrics
from pharoah_serving.pseudonym_keys import PseudonymKeys
from pharoah_serving.pseudonym_service import PseudonymServicer
from pharoah_serving.quotas import Limits, Quotas

DRAIN_SECONDS = 2.0


@dataclass(frozen=True)
class PseudonymServiceSettings:
    """How to serve: where, with which files, to whom."""

    listen: str
    folder: Path
    """For keys and the audit log."""
    tls: Tls | None = None
    domain: str = "pharoah.local"
    tokens: Path | None = None
    pseudonyms_per_day: int = Limits.organisation_pseudonyms
    """For one organisation."""


class ServedKey(NamedTuple):
    """Where a running service is reached, and the key that it serves."""

    address: str
    public: str
    """The public key that tenants pin, in hexadecimal digits."""


@asynccontextmanager
async def pseudonym_service(settings: PseudonymServiceSettings) -> AsyncIterator[ServedKey]:
    """A running service. Raises ProviderError."""
    host, _, port = settings.listen.rpartition(":")
    if settings.tls is None and (host not in LOOPBACK or settings.tokens is None):
        raise ProviderError(f"--listen {settings.listen}: give --tls-cert, --tls-key and --client-ca")
    libsodium.library()
    identities = Certificates(settings.domain) if settings.tls else Tokens(settings.tokens or Path())
    keys, audit = open_keys(settings.folder / "keys"), AuditLog(settings.folder / "audit")
    quotas = Quotas(Limits(organisation_pseudonyms=settings.pseudonyms_per_day))
    quotas.recount(audit.today(time.time()), time.time())
    servicer = PseudonymServicer(PseudonymKeys(keys, time.time, quotas))
    server, bound = listen(
        {"Pseudonyms": servicer}, CallGuard(identities, audit, Metrics()), settings.listen, settings.tls
    )
    await server.start()
    try:
        address = f"{host}:{bound}" if port == "0" else settings.listen
        yield ServedKey(address=address, public=keys.public.hex())
    finally:
        await server.stop(DRAIN_SECONDS)
        audit.close()


async def serve_pseudonyms(settings: PseudonymServiceSettings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ProviderError."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with pseudonym_service(settings) as (address, public):
        print(f"pharoah-auditor serves a pseudonym key on {address}")
        print(f"auditor key for tenants: {public}", flush=True)
        await stop.wait()
