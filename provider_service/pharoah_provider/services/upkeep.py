"""What a provider does every minute besides answering calls."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from pharoah_protocol.log.view import AUDIT, PSEUDONYM_KEY, Entry
from pharoah_provider.publication import Publisher
from pharoah_provider.services.health import Health
from pharoah_provider.storage.retention import RetentionTask
from pharoah_serving.audit_log import AuditLog
from pharoah_serving.pseudonym_keys import PseudonymKeys

log = logging.getLogger("pharoah.provider.upkeep")

PERIOD_SECONDS = 60.0
"""A node of a new configuration gets its class within this time (`exchange_server`)."""


def is_ready(publisher: Publisher, now: float) -> bool:
    """Whether the provider can serve: there is no epoch yet, or the newest one has not expired at `now` (unix)."""
    return publisher.log.view.epoch == 0 or publisher.epoch().head.not_after > now


@dataclass(frozen=True)
class Upkeep:
    """The recurring work, each part independent of the others."""

    publisher: Publisher
    audit: AuditLog
    pseudonym_keys: PseudonymKeys
    health: Health
    old_rows: RetentionTask
    now: Callable[[], float] = time.time
    """Unix seconds."""

    async def begin(self) -> None:
        """Before the first call: publish this period's pseudonym key, and report the health status."""
        await self._log_pseudonym_key()
        self.report_health()

    async def run(self) -> None:
        """Every minute, until cancelled. A part that fails is logged and tried again with the next minute."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            for work in (self._rotate, self._log_days, self._log_pseudonym_key, self.old_rows.run_if_due):
                try:
                    await work()
                except Exception:
                    log.exception("%s failed; it is tried again in a minute", work.__name__)
            self.report_health()

    def report_health(self) -> None:
        """Set the health status of all services."""
        self.health.set_status(serving=is_ready(self.publisher, self.now()))

    async def _rotate(self) -> None:
        """Seal a new epoch if one is due."""
        await self.publisher.rotate(self.now())

    async def _log_days(self) -> None:
        """Put the hash of each finished day of the audit log into the transparency log."""
        after, now = self.publisher.log.view.day, self.now()
        for day, digest in await asyncio.to_thread(lambda: list(self.audit.finished(after, now))):
            await self.publisher.append(Entry(AUDIT, day, digest))

    async def _log_pseudonym_key(self) -> None:
        """Put the public key of a period into the log once, so that all tenants see the same key."""
        period, public, _ = self.pseudonym_keys.current()
        if period > self.publisher.log.view.period:
            await self.publisher.append(Entry.of(PSEUDONYM_KEY, period, public))
