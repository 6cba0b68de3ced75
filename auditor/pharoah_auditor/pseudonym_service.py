"""The service of the second pseudonym key: the schema and the call guard of the provider, with the auditor's key."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pharoah_protocol.voprf import libsodium
from pharoah_serving.addresses import Defaults, address_of
from pharoah_serving.audit_log import AuditLog
from pharoah_serving.call_guard import CallGuard
from pharoah_serving.clock import Clock
from pharoah_serving.connections import watches_of
from pharoah_serving.folder_lock import FolderLock
from pharoah_serving.identity import Certificates
from pharoah_serving.keys import make_keys, open_keys
from pharoah_serving.listener import Tls, listen, prepare_process
from pharoah_serving.metrics import Metrics
from pharoah_serving.peer_certificates import PeerCertificates
from pharoah_serving.pseudonym_keys import PseudonymKeys
from pharoah_serving.pseudonym_service import PseudonymServicer
from pharoah_serving.quotas import Limits, Quotas, reduce_for_quotas
from pharoah_serving.time_guard import TimeGuard
from pharoah_serving.tokens import Tokens
from pharoah_system.local_sockets import AUDITOR_SOCKET
from pharoah_system.standard_streams import show

STOP_SECONDS = 2.0
KEYS = "keys"
"""Folder of the keys and of the remembered time, inside that of the service."""
DEFAULT_ADDRESSES = Defaults(socket=AUDITOR_SOCKET, port="127.0.0.1:7491")
KEEP_SECONDS = 60.0
"""How often the time is written down, and an operator's confirmation of it is read."""


@dataclass(frozen=True)
class PseudonymServiceSettings:
    """How to serve: where, with which files, to whom."""

    listen: str
    """HOST:PORT with TLS, else `unix:/path`; when it is empty, one of `DEFAULT_ADDRESSES`."""
    folder: Path
    """For keys and the audit log."""
    tls: Tls | None = None
    domain: str = "pharoah.local"
    tokens: Path = Path("pharoah-auditor-tokens")
    """List of the callers without TLS, who use a Unix socket."""
    socket_group: str = ""
    pseudonyms_per_day: int = Limits.organisation_pseudonyms
    """For one organisation."""
    deny_list: Path | None = None
    """Serial numbers of certificates that are not accepted any more."""
    init: bool = False
    """Whether to make the keys when there are none."""


class ServedKey(NamedTuple):
    """Where a running service is reached, and the key that it serves."""

    address: str
    public: str
    """The public key that tenants pin, in hexadecimal digits."""


@asynccontextmanager
async def pseudonym_service(settings: PseudonymServiceSettings) -> AsyncIterator[ServedKey]:
    """A running service. Raises ProviderError."""
    address = address_of(settings.listen, settings.tls, DEFAULT_ADDRESSES, settings.socket_group)
    libsodium.library()
    identities = (
        Certificates(settings.domain, PeerCertificates(settings.tls.clients, settings.deny_list))
        if settings.tls
        else Tokens(settings.tokens)
    )
    keys = (make_keys if settings.init else open_keys)(settings.folder / KEYS)
    public = keys.public.hex()  # raises when there is no key
    with ExitStack() as owned:
        owned.callback(address.close)
        for part in (KEYS, "audit"):
            owned.enter_context(FolderLock(settings.folder / part, "pseudonym service"))
        guard = TimeGuard(Clock(), settings.folder / KEYS)
        owned.callback(guard.keep)
        audit = AuditLog(settings.folder / "audit", reduce_for_quotas)
        owned.callback(audit.close)
        quotas = Quotas(Limits(organisation_pseudonyms=settings.pseudonyms_per_day))
        quotas.recount(audit.today(guard.now()), guard.now())
        servicer = PseudonymServicer(PseudonymKeys(keys, guard.now, quotas))
        calls = CallGuard(identities, audit, Metrics(), guard.now)
        server, endpoint = listen({"Pseudonyms": servicer}, calls, address)
        await server.start()
        watches = [watch.run() for watch in watches_of(endpoint, calls.peers)]
        background = [asyncio.create_task(part) for part in (_keep_time(guard), calls.recorder.run(), *watches)]
        try:
            yield ServedKey(address=endpoint, public=public)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            calls.peers.close()
            await server.stop(STOP_SECONDS)
            calls.recorder.flush()


async def _keep_time(guard: TimeGuard) -> None:
    while True:
        guard.keep()
        await asyncio.sleep(KEEP_SECONDS)


async def serve_pseudonyms(settings: PseudonymServiceSettings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ProviderError."""
    prepare_process()
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with pseudonym_service(settings) as (address, public):
        show(f"pharoah-auditor serves a pseudonym key on {address}")
        show(f"auditor key for tenants: {public}", flush=True)
        await stop.wait()
