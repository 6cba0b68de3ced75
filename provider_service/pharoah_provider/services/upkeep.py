"""What a provider does every minute besides answering calls, and at once when its clock is right again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from pharoah_protocol.log.view import AUDIT, PSEUDONYM_KEY, Entry
from pharoah_provider.node_forecasts import NodeForecasts
from pharoah_provider.publication import Publisher
from pharoah_provider.services.health import Health
from pharoah_provider.storage.retention import RetentionTask
from pharoah_serving.audit_log import AuditLog
from pharoah_serving.pseudonym_keys import PseudonymKeys
from pharoah_serving.time_guard import TimeGuard

log = logging.getLogger("pharoah.provider.upkeep")

PERIOD_SECONDS = 60.0
"""A node of a new configuration gets its class within this time (`exchange_server`)."""
LOOK_SECONDS = 1.0
"""How often the clocks are compared, at most; a comparison takes microseconds."""


def is_ready(publisher: Publisher, guard: TimeGuard) -> bool:
    """Whether the provider can serve: the clock is right, and there is no epoch yet or the newest one is in force."""
    return not guard.jumped and (publisher.log.view.epoch == 0 or publisher.in_force)


@dataclass(frozen=True)
class Upkeep:
    """The recurring work, each part independent of the others."""

    publisher: Publisher
    audit: AuditLog
    pseudonym_keys: PseudonymKeys
    health: Health
    old_rows: RetentionTask
    guard: TimeGuard
    node_forecasts: NodeForecasts
    storage_failed: Callable[[], bool] = lambda: False
    """Whether nothing can be read or stored any more."""

    async def begin(self) -> None:
        """Before the first call: publish this period's pseudonym key, and report the health status."""
        await self._log_pseudonym_key()
        self.report_health()

    async def run(self) -> None:
        """Every minute of the steady clock, and when the clock has jumped or is right again; until cancelled."""
        steady = self.guard.clock.steady
        due, changes = steady() + PERIOD_SECONDS, self.guard.changes
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, PERIOD_SECONDS))
            self.guard.look()
            if self.storage_failed():
                self.report_health()
            if steady() >= due or self.guard.changes != changes:
                due, changes = steady() + PERIOD_SECONDS, self.guard.changes
                await self.once()

    async def once(self) -> None:
        """All recurring work. A part that fails is logged and tried again with the next minute."""
        for work in (
            self._keep_time,
            self._rotate,
            self._log_days,
            self._log_pseudonym_key,
            self._delete_old_rows,
            self.node_forecasts.look,
        ):
            try:
                await work()
            except Exception:
                log.exception("%s failed; it is tried again in a minute", work.__name__)
        self.report_health()

    def report_health(self) -> None:
        """Set the health status of all services."""
        self.health.set_status(serving=not self.storage_failed() and is_ready(self.publisher, self.guard))

    async def _keep_time(self) -> None:
        """Remember the time, and follow an operator who has confirmed it."""
        self.guard.keep()

    async def _rotate(self) -> None:
        """Seal a new epoch if one is due."""
        await self.publisher.rotate()

    async def _delete_old_rows(self) -> None:
        """Delete rows past their retention, while the time is certain."""
        if self.guard.trusted:
            await self.old_rows.run_if_due()

    async def _log_days(self) -> None:
        """Put the hash of each finished day of the audit log into the transparency log."""
        logged, now = self.publisher.log.tip.days, self.guard.now()
        for day, digest in await asyncio.to_thread(lambda: list(self.audit.list_finished(logged, now))):
            await self.publisher.append(Entry(AUDIT, day, digest))
        self.audit.skip(self.publisher.log.tip.days)

    async def _log_pseudonym_key(self) -> None:
        """Put the public key of a period into the log once, so that all tenants see the same key."""
        period, public, _ = self.pseudonym_keys.current()
        if period not in self.publisher.log.tip.periods:
            await self.publisher.append(Entry.from_body(PSEUDONYM_KEY, period, public))
