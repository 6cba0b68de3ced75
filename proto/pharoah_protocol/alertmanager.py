"""Alerts for an Alertmanager of Prometheus, or for what takes the same calls (its API v2, `POST /api/v2/alerts`).

Alertmanager forgets an alert that is not sent again, so an alert is sent every minute until it ends. A receiver that is
away or slow costs nothing but a task: alerts wait in a bounded queue, and the newest state of each is what is sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pharoah_system.http_address import HttpAddress, HttpAddressError
from pharoah_system.http_client import post
from pharoah_system.own_thread import begin_in_own_thread

log = logging.getLogger("pharoah.alertmanager")

SEND_AGAIN_SECONDS = 60.0
"""As Prometheus does by default (`--rules.alert.resend-delay`)."""
CALL_SECONDS = 5.0
"""The deadline of a whole call."""
GIVEN_UP_SECONDS = CALL_SECONDS + 0.25
"""When a call is no longer waited for, should its thread hang in spite of its deadline: the next one is sent then."""
MAX_ALERTS = 4096
"""Alerts that are kept; beyond, those that ended and could not be sent go first. A provider may have one for each of
some thousand agents when a part of its network fails."""


@dataclass(frozen=True, kw_only=True)
class OutsideAlert:
    """One alert as the receiver gets it."""

    key: str
    """Names the alert for its sender: whatever else changes, it is the same alert until it ends."""
    labels: Mapping[str, str]
    """They name the alert for its receiver, which takes other labels for another alert: those that came first stay."""
    annotations: Mapping[str, str]
    """What people read."""
    began_at: float
    """Unix seconds."""
    ended_at: float | None = None

    def to_data(self, now: float) -> dict[str, Any]:
        """The alert in the format of Alertmanager; `now` in unix seconds.

        A clock may have been ahead when the alert began or ended. Alertmanager refuses an alert that has not begun, and
        takes one that ends later as one that goes on.
        """
        began_at = min(self.began_at, now)
        data: dict[str, Any] = {
            "labels": dict(self.labels),
            "annotations": {name: text for name, text in self.annotations.items() if text},
            "startsAt": _time(began_at),
        }
        if self.ended_at is not None:
            data["endsAt"] = _time(min(max(self.ended_at, began_at), now))
        return data


class AlertSender:
    """Sends alerts to one receiver. Owns one task between the first `send` and `close`."""

    def __init__(
        self, url: str, again_seconds: float = SEND_AGAIN_SECONDS, now: Callable[[], float] = time.time
    ) -> None:
        """`now` returns unix seconds. A URL that cannot be used is logged with each call, as a receiver that is away
        is."""
        self._url, self._again_seconds, self._now = url, again_seconds, now
        self._where = _origin(url)
        self._alerts: dict[str, OutsideAlert] = {}
        """The newest state of each alert that goes on, or whose end was not sent yet, by its key."""
        self._changed = asyncio.Event()
        self._is_full = False
        """Whether alerts have been left out, which is logged once."""
        self._failed = False
        """Whether the receiver did not take the last call."""
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def send(self, alert: OutsideAlert) -> None:
        """Send an alert now, and again until it ends. Nothing is sent after `close`."""
        if self._closed:
            return
        before = self._alerts.get(alert.key)
        if before is None and len(self._alerts) >= MAX_ALERTS:
            ended = (one for one, known in self._alerts.items() if known.ended_at is not None)
            oldest = next(iter(self._alerts))
            del self._alerts[next(ended, oldest)]
            if not self._is_full:
                log.error("more than %d alerts: the receiver will take the oldest for over", MAX_ALERTS)
            self._is_full = True
        self._alerts[alert.key] = alert if before is None else replace(alert, labels=before.labels)
        self._changed.set()
        self._task = self._task or asyncio.create_task(self._run())

    async def close(self, seconds: float) -> None:
        """Send what was not sent, for so long at most."""
        self._closed = True
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._changed.is_set() or self._failed:
            try:
                async with asyncio.timeout(seconds):
                    await self._post()
            except TimeoutError:
                log.warning("%s did not take the last alerts in time", self._where)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._again_seconds):
                    await self._changed.wait()
            except TimeoutError:
                pass
            await self._post()
            await asyncio.sleep(min(1.0, self._again_seconds))  # what comes together is sent together

    async def _post(self) -> None:
        """One call with all alerts. What could not be sent is sent with the next one."""
        self._changed.clear()
        sent = dict(self._alerts)
        if not sent:
            return
        now = self._now()
        body = json.dumps([alert.to_data(now) for alert in sent.values()]).encode()
        try:
            async with asyncio.timeout(GIVEN_UP_SECONDS):
                await asyncio.wrap_future(begin_in_own_thread(lambda: _call(self._url, body)))
        except asyncio.CancelledError:
            self._changed.set()  # nobody knows whether the receiver has taken it
            raise
        except Exception as error:  # noqa: BLE001 - what answers at the address may be anything
            log.warning("%s did not take alerts: %s: %s", self._where, type(error).__name__, error)
            self._failed = True
            return
        self._failed = False
        for key, alert in sent.items():
            if alert.ended_at is not None and self._alerts.get(key) is alert:
                del self._alerts[key]


def _call(url: str, body: bytes) -> None:
    """Raises OSError, also for an answer that is no success.

    A redirection is no success: the next address would be asked without the alerts, and may well answer.
    """
    answer = post(HttpAddress.from_url(url), body, content_type="application/json", limit_seconds=CALL_SECONDS)
    if answer.redirects_to:
        raise OSError(f"it redirects to {answer.redirects_to}; name the address that takes alerts")
    if not answer.is_success:
        raise OSError(f"it answers with status {answer.status}")


def _origin(url: str) -> str:
    """What the log names a receiver by: the rest of its URL may be a secret."""
    try:
        return HttpAddress.from_url(url).origin
    except HttpAddressError:
        return "the receiver of alerts"


def _time(unix: float) -> str:
    """RFC 3339."""
    return datetime.fromtimestamp(unix, UTC).isoformat()
