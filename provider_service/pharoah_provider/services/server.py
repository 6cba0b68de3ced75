"""The provider process: everything wired together, from the database to the listening port."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pharoah_protocol.local_sockets import PROVIDER_SOCKET
from pharoah_protocol.log.checkpoint import log_origin
from pharoah_protocol.v1 import service
from pharoah_protocol.voprf import libsodium
from pharoah_provider.exchange_server import ExchangeServer
from pharoah_provider.first_start import make_provider
from pharoah_provider.fleet import Fleet
from pharoah_provider.high_water import HighWater, state_folder
from pharoah_provider.monitoring.budgets import SHARE
from pharoah_provider.monitoring.intake import Intake
from pharoah_provider.monitoring.monitor import SETTLE_SECONDS, Monitor
from pharoah_provider.monitoring.run_budgets import JoinBudgets, ReportBudgets
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_provider.publication import Publisher
from pharoah_provider.services.agent import AgentServicer
from pharoah_provider.services.exchange import ExchangeServicer
from pharoah_provider.services.health import Health
from pharoah_provider.services.operator import OperatorServicer
from pharoah_provider.services.runs import RunsServicer
from pharoah_provider.services.upkeep import Upkeep
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.storage.retention import RetentionTask, retention
from pharoah_provider.transparency_log import TransparencyLog
from pharoah_provider.witnesses import read_witnesses
from pharoah_serving.addresses import Defaults, address_of
from pharoah_serving.audit_log import DAY_SECONDS, AuditLog, utc_day
from pharoah_serving.call_guard import RULES, CallGuard
from pharoah_serving.clock import Clock
from pharoah_serving.connections import watches_of
from pharoah_serving.folder_lock import FolderLock
from pharoah_serving.identity import Certificates
from pharoah_serving.keys import open_keys
from pharoah_serving.listener import Tls, listen, prepare_process
from pharoah_serving.metrics import Metrics
from pharoah_serving.metrics_server import MetricsAddress, serving_metrics
from pharoah_serving.peer_certificates import PeerCertificates
from pharoah_serving.pseudonym_keys import PseudonymKeys
from pharoah_serving.pseudonym_service import PseudonymServicer
from pharoah_serving.quotas import Limits, Quotas, counts_for_quotas
from pharoah_serving.time_guard import TimeGuard
from pharoah_serving.tokens import Tokens

log = logging.getLogger("pharoah.provider")

DRAIN_SECONDS = 2.0
"""Time for calls to end when the provider stops; tenants connect again by themselves."""
DEFAULT_ADDRESSES = Defaults(socket=PROVIDER_SOCKET, port="127.0.0.1:7443")


@dataclass(frozen=True)
class ServerSettings:
    """The options of `pharoah-provider serve`."""

    listen: str = ""
    """HOST:PORT with TLS, else `unix:/path`; when it is empty, one of `DEFAULT_ADDRESSES`."""
    socket_group: str = ""
    """Its members may connect to the Unix socket, besides its owner."""
    http: str = "unix:pharoah-run/metrics.sock"
    """Where /metrics is served (`metrics_server`)."""
    http_token: Path | None = None
    metrics_public: bool = False
    db: Path = Path("pharoah.duckdb")
    keys: str = "pharoah-keys"
    """A folder, or `command:CMD` for a key service."""
    audit: Path = Path("pharoah-audit")
    witnesses: Path | None = None
    tls: Tls | None = None
    domain: str = "pharoah.local"
    """SPIFFE trust domain of client certificates."""
    deny_list: Path | None = None
    """Serial numbers of certificates that are not accepted any more."""
    tokens: Path = Path("pharoah-tokens")
    """List of the callers without TLS, who use a Unix socket."""
    settle_seconds: float = SETTLE_SECONDS
    benchmark_share: float = SHARE
    """Share of the time that micro-benchmarks may take for one tenant, on all nodes together."""
    limits: Limits = field(default_factory=Limits)
    retention: Mapping[str, float] = field(default_factory=dict)
    """Days by table, where they differ from `storage.retention`."""
    init: bool = False
    """Whether to make the keys when there are none."""
    clock: Clock = field(default_factory=Clock)


@asynccontextmanager
async def provider(settings: ServerSettings) -> AsyncIterator[str]:
    """A running provider; the address it listens on. Raises ProviderError naming file, setting or port."""
    address = address_of(settings.listen, settings.tls, DEFAULT_ADDRESSES, settings.socket_group)
    metrics_address = MetricsAddress(settings.http, settings.http_token, settings.metrics_public)
    metrics_address.check()
    kept_days = retention(settings.retention)
    libsodium.library()  # raises with what to install, before anything is opened
    identities = (
        Certificates(settings.domain, PeerCertificates(settings.tls.clients, settings.deny_list))
        if settings.tls
        else Tokens(settings.tokens)
    )
    witnesses = read_witnesses(settings.witnesses)
    if settings.init:
        make_provider(settings.keys, settings.db)
    with ExitStack() as owned:
        owned.callback(address.close)
        keys, folder = open_keys(settings.keys), state_folder(settings.keys, settings.db)
        origin = log_origin(keys.public)  # raises when there is no signing key
        for locked in (folder, settings.audit):
            owned.enter_context(FolderLock(locked, "provider"))
        high_water = HighWater(folder, origin, settings.clock.wall())
        guard = TimeGuard(settings.clock, folder, high_water.mark.signed_at)
        owned.callback(guard.keep)
        clock, audit = guard.clock, AuditLog(settings.audit, counts_for_quotas)
        owned.callback(audit.close)
        store = DuckStorage(settings.db)
        owned.callback(store.close)
        metrics, fleet = Metrics(), Fleet(clock)
        metrics.watch_agents(fleet.last_seen)
        transparency = TransparencyLog(
            await store.log.log_entries(),
            keys.signing_key,
            witnesses,
            await store.log.checkpoint(),
            high_water,
            clock,
        )
        audit.skip(transparency.tip.days)
        publisher, monitor = (
            Publisher(store, keys, transparency, guard),
            Monitor(store, fleet, metrics, settings.settle_seconds, clock, settings.benchmark_share),
        )
        await publisher.open()
        if release := await store.published.newest_release():
            monitor.use(release)
        await monitor.restore()
        quotas = Quotas(settings.limits)
        quotas.recount(audit.today(clock.wall()), clock.wall())
        joins = JoinBudgets(monitor.watches, clock)
        joins.restore(await store.runs.active_runs())
        reported_today = await store.runs.reported_since(utc_day(clock.wall()) * DAY_SECONDS)
        intake = Intake(store.runs, monitor, metrics, clock, ReportBudgets(clock, reported_today))
        servicers = {
            "Exchange": ExchangeServicer(ExchangeServer(store.nodes, keys, publisher, quotas, fleet, clock)),
            "Runs": RunsServicer(store, monitor, intake, joins, quotas, clock),
            "Pseudonyms": PseudonymServicer(
                names := PseudonymKeys(keys, clock.wall, quotas), store.sharing.count_evaluation
            ),
            "Agent": AgentServicer(store.nodes, fleet, metrics, clock),
            "Operator": OperatorServicer(store, keys, fleet, publisher, monitor),
        }
        assert servicers.keys() == RULES.keys()
        calls = CallGuard(identities, audit, metrics, clock.wall)
        status = Health((service(name).full_name for name in servicers), calls.peers)
        server, endpoint = listen(servicers, calls, address, status.handler())
        old_rows = RetentionTask(store, kept_days, clock.wall, clock.steady)
        upkeep = Upkeep(publisher, audit, names, status, old_rows, guard)
        try:
            await server.start()
            async with OwnedTasks() as background, serving_metrics(metrics.text, metrics_address) as metrics_at:
                await upkeep.begin()
                for work in (upkeep, calls.recorder, *watches_of(endpoint, calls.peers)):
                    background.start(work.run())
                background.start(monitor.keep_watch())
                log.info("metrics on %s", metrics_at)
                yield endpoint
        finally:
            status.set_status(serving=False)
            monitor.drain()
            calls.peers.close()
            await server.stop(DRAIN_SECONDS)
            await monitor.close()
            calls.recorder.flush()


async def serve(settings: ServerSettings, ready: Any) -> None:
    """Run a provider until SIGTERM or SIGINT; `ready(address)` is called once it listens."""
    stop = asyncio.Event()
    prepare_process()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with provider(settings) as address:
        ready(address)
        await stop.wait()
        log.info("draining")
