"""The provider process: everything wired together, from the database to the listening port."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpc_reflection.v1alpha import reflection

from pharoah_protocol.v1 import service
from pharoah_protocol.voprf import libsodium
from pharoah_provider.clock import Clock
from pharoah_provider.exchange_server import ExchangeServer
from pharoah_provider.fleet import Fleet
from pharoah_provider.monitoring.intake import Intake
from pharoah_provider.monitoring.monitor import SETTLE_SECONDS, Monitor
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_provider.publication import Publisher
from pharoah_provider.services.agent import AgentServicer
from pharoah_provider.services.exchange import ExchangeServicer
from pharoah_provider.services.health import SERVICE as HEALTH
from pharoah_provider.services.health import Health
from pharoah_provider.services.operator import OperatorServicer
from pharoah_provider.services.runs import RunsServicer
from pharoah_provider.services.upkeep import Upkeep
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.storage.retention import RetentionTask, retention
from pharoah_provider.transparency_log import TransparencyLog
from pharoah_provider.witnesses import read_witnesses
from pharoah_serving.audit_log import AuditLog
from pharoah_serving.call_guard import RULES, CallGuard
from pharoah_serving.errors import ProviderError
from pharoah_serving.identity import Certificates, Tokens
from pharoah_serving.keys import open_keys
from pharoah_serving.listener import LOOPBACK, Tls, listen, raise_descriptor_limit
from pharoah_serving.metrics import Metrics
from pharoah_serving.pseudonym_keys import PseudonymKeys
from pharoah_serving.pseudonym_service import PseudonymServicer
from pharoah_serving.quotas import Limits, Quotas

log = logging.getLogger("pharoah.provider")

DRAIN_SECONDS = 2.0
LARGEST_PORT = 65_535


@dataclass(frozen=True)
class ServerSettings:
    """The options of `pharoah-provider serve`."""

    listen: str = "127.0.0.1:7443"
    http: str = "127.0.0.1:7480"
    db: Path = Path("pharoah.duckdb")
    keys: str = "pharoah-keys"
    """A folder, or `command:CMD` for a key service."""
    audit: Path = Path("pharoah-audit")
    witnesses: Path | None = None
    tls: Tls | None = None
    domain: str = "pharoah.local"
    """SPIFFE trust domain of client certificates."""
    tokens: Path = Path("pharoah-tokens")
    """File of the callers without TLS, which is served on loopback only."""
    settle_seconds: float = SETTLE_SECONDS
    limits: Limits = field(default_factory=Limits)
    retention: Mapping[str, float] = field(default_factory=dict)
    """Days by table, where they differ from `storage.retention`."""


@asynccontextmanager
async def provider(settings: ServerSettings) -> AsyncIterator[str]:
    """A running provider; the address it listens on. Raises ProviderError naming file, setting or port."""
    host, _, port = settings.listen.rpartition(":")
    if not port.isdecimal() or int(port) > LARGEST_PORT:
        raise ProviderError(f"--listen {settings.listen}: expected HOST:PORT, with a port up to {LARGEST_PORT}")
    if host not in LOOPBACK and settings.tls is None:
        raise ProviderError(f"--listen {settings.listen}: not loopback; give --tls-cert, --tls-key and --client-ca")
    kept_days = retention(settings.retention)
    libsodium.library()  # raises with what to install, before anything is opened
    identities = Certificates(settings.domain) if settings.tls else Tokens(settings.tokens)
    keys, witnesses, audit = open_keys(settings.keys), read_witnesses(settings.witnesses), AuditLog(settings.audit)
    store, clock = DuckStorage(settings.db), Clock()
    try:
        metrics, fleet = Metrics(), Fleet(clock)
        metrics.watch_agents(fleet.last_seen)
        transparency = TransparencyLog(
            await store.log.log_entries(), keys.signing_key, witnesses, await store.log.checkpoint()
        )
        publisher, monitor = (
            Publisher(store, keys, transparency),
            Monitor(store, fleet, metrics, settings.settle_seconds, clock),
        )
        await publisher.open(time.time())
        if release := await store.published.newest_release():
            monitor.use(release)
        await monitor.restore()
        quotas = Quotas(settings.limits)
        quotas.recount(audit.today(time.time()), time.time())
        servicers = {
            "Exchange": ExchangeServicer(ExchangeServer(store.nodes, keys, publisher, quotas, fleet)),
            "Runs": RunsServicer(store, monitor, Intake(store.runs, monitor, metrics, clock), clock),
            "Pseudonyms": PseudonymServicer(names := PseudonymKeys(keys, time.time, quotas)),
            "Agent": AgentServicer(store.nodes, fleet),
            "Operator": OperatorServicer(store, keys, fleet, publisher, monitor),
        }
        assert servicers.keys() == RULES.keys()
        server, bound = listen(servicers, CallGuard(identities, audit, metrics), settings.listen, settings.tls)
        status = Health(service(name).full_name for name in servicers)
        server.add_generic_rpc_handlers((status.handler(),))
        if host in LOOPBACK:
            names_served = [service(name).full_name for name in servicers]
            reflection.enable_server_reflection([*names_served, HEALTH, reflection.SERVICE_NAME], server)
        upkeep = Upkeep(publisher, audit, names, status, RetentionTask(store, kept_days))
        http = _serve_metrics(metrics, settings.http)
        try:
            await server.start()
            async with OwnedTasks() as background:
                await upkeep.begin()
                background.start(upkeep.run())
                background.start(monitor.keep_watch())
                yield f"{host}:{bound}" if port == "0" else settings.listen
        finally:
            status.set_status(serving=False)
            monitor.drain()
            await server.stop(DRAIN_SECONDS)
            await monitor.close()
            http.shutdown()
            http.server_close()
    finally:
        store.close()
        audit.close()


async def serve(settings: ServerSettings, ready: Any) -> None:
    """Run a provider until SIGTERM or SIGINT; `ready(address)` is called once it listens."""
    stop = asyncio.Event()
    raise_descriptor_limit()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with provider(settings) as address:
        ready(address)
        await stop.wait()
        log.info("draining")


def _serve_metrics(metrics: Metrics, http: str) -> Any:
    host, _, port = http.rpartition(":")
    try:
        return metrics.serve(host, int(port))
    except (OSError, ValueError) as error:
        raise ProviderError(f"--http {http}: {error}") from None
