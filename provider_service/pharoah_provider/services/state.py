"""What the services of a provider work on: its files, which belong to one process, and what is restored from them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from pharoah_protocol.log.checkpoint import log_origin
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import sign
from pharoah_provider.campaigns.book import Campaigns
from pharoah_provider.contexts import Contexts
from pharoah_provider.fleet import Fleet
from pharoah_provider.high_water import HighWater, state_folder
from pharoah_provider.monitoring.guest_orders import GuestOrders
from pharoah_provider.monitoring.intake import Intake
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.monitoring.run_budgets import JoinBudgets, ReportBudgets
from pharoah_provider.node_actions import NodeActions
from pharoah_provider.node_forecasts import NodeForecasts
from pharoah_provider.publication import Publisher
from pharoah_provider.services.settings import ServerSettings
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.transparency_log import TransparencyLog, Witness
from pharoah_serving.audit_log import DAY_SECONDS, AuditLog, utc_day
from pharoah_serving.clock import Clock
from pharoah_serving.folder_lock import FolderLock
from pharoah_serving.keys import Keys, open_keys
from pharoah_serving.metrics import Metrics
from pharoah_serving.pseudonym_keys import PseudonymKeys
from pharoah_serving.quotas import Quotas, reduce_for_quotas
from pharoah_serving.time_guard import TimeGuard


@dataclass(frozen=True)
class ProviderFiles:
    """The open files of a provider."""

    keys: Keys
    high_water: HighWater
    guard: TimeGuard
    audit: AuditLog
    store: Storage


@dataclass(frozen=True)
class ProviderState:
    """What the services share."""

    files: ProviderFiles
    clock: Clock
    """The guarded clock."""
    metrics: Metrics
    fleet: Fleet
    publisher: Publisher
    monitor: Monitor
    campaigns: Campaigns
    quotas: Quotas
    joins: JoinBudgets
    intake: Intake
    node_actions: NodeActions
    node_forecasts: NodeForecasts
    pseudonym_keys: PseudonymKeys


def open_files(settings: ServerSettings, owned: AsyncExitStack) -> ProviderFiles:
    """Lock and open the files; `owned` closes them. Raises ProviderError naming the file."""
    keys, folder = open_keys(settings.keys), state_folder(settings.keys, settings.db)
    keys.read_lasting()
    origin = log_origin(keys.public)
    for locked in (folder, settings.audit):
        owned.enter_context(FolderLock(locked, "provider"))
    high_water = HighWater(folder, origin, settings.clock.wall())
    guard = TimeGuard(settings.clock, folder, high_water.mark.signed_at)
    owned.callback(guard.keep)
    audit = AuditLog(settings.audit, reduce_for_quotas)
    owned.callback(audit.close)
    store = DuckStorage(settings.db)
    owned.callback(store.close)
    return ProviderFiles(keys, high_water, guard, audit, store)


async def restore_state(settings: ServerSettings, files: ProviderFiles, witnesses: Sequence[Witness]) -> ProviderState:
    """Go on where the process before has ended. Raises StoreError when the database does not continue what was
    signed."""
    clock, store, audit = files.guard.clock, files.store, files.audit
    metrics, contexts = Metrics(), Contexts()
    fleet = Fleet(clock, contexts)
    metrics.watch_agents(fleet.last_seen, clock.wall)
    publisher = await _open_publisher(files, witnesses, clock, contexts)
    node_forecasts = NodeForecasts(store, fleet, clock, lambda content: _sign_model(content, files.keys))
    await node_forecasts.restore()
    guests = GuestOrders(fleet, metrics, clock, files.keys.signing_key)
    monitor = Monitor(
        store,
        fleet,
        metrics,
        settings.settle_seconds,
        clock,
        settings.benchmark_share,
        settings.idle_check_seconds,
        settings.alert_url,
        guests,
        node_forecasts.rates,
    )
    publisher.follow(monitor.use)
    await monitor.restore()
    node_actions = NodeActions(store, fleet, metrics, clock, settings.node_actions, settings.breaker)
    await node_actions.restore()
    quotas = Quotas(settings.limits)
    quotas.recount(audit.today(clock.wall()), clock.wall())
    joins = JoinBudgets(monitor.watches, clock)
    joins.restore(await store.runs.active_runs())
    reported_today = await store.runs.list_reported_since(utc_day(clock.wall()) * DAY_SECONDS)
    return ProviderState(
        files=files,
        clock=clock,
        metrics=metrics,
        fleet=fleet,
        publisher=publisher,
        monitor=monitor,
        campaigns=Campaigns(store, fleet, monitor.in_use, clock),
        quotas=quotas,
        joins=joins,
        intake=Intake(store.runs, monitor, metrics, clock, ReportBudgets(clock, reported_today)),
        node_actions=node_actions,
        node_forecasts=node_forecasts,
        pseudonym_keys=PseudonymKeys(files.keys, clock.wall, quotas),
    )


def _sign_model(content: bytes, keys: Keys) -> bytes:
    return sign(signed_messages.hazard_model(content), keys.signing_key)


async def _open_publisher(
    files: ProviderFiles, witnesses: Sequence[Witness], clock: Clock, contexts: Contexts
) -> Publisher:
    transparency = TransparencyLog(
        await files.store.log.log_entries(),
        files.keys.signing_key,
        witnesses,
        await files.store.log.checkpoint(),
        files.high_water,
        clock,
    )
    files.audit.skip(transparency.tip.days)
    publisher = Publisher(files.store, files.keys, transparency, files.guard, contexts)
    await publisher.open()
    return publisher
