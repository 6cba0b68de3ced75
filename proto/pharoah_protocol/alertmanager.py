"""Alerts for an Alertmanager of Prometheus, or for what takes the same calls (its API v2, `POST /api/v2/alerts`).

Alertmanager forgets an alert that is not sent again, so an alert is sent every minute until it ends. A receiver that is
away or slow costs nothing but a task: alerts wait in a bounded queue, and the newest state of each is what is sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

log = logging.getLogger("pharoah.alertmanager")

SEND_AGAIN_SECONDS = 60.0
"""As Prometheus does by default (`--rules.alert.resend-delay`)."""
CALL_SECONDS = 5.0
MOST_ALERTS = 1024
"""Alerts that are kept; beyond, those that ended and could not be sent go first."""


@dataclass(frozen=True, kw_only=True)
class OutsideAlert:
    """One alert as the receiver gets it."""

    labels: Mapping[str, str]
    """They name the alert; it has the same ones at its end."""
    annotations: Mapping[str, str]
    """What people read."""
    began_at: float
    """Unix seconds."""
    ended_at: float | None = None

    def to_data(self) -> dict[str, Any]:
        """The alert in the format of Alertmanager."""
        data: dict[str, Any] = {
            "labels": dict(self.labels),
            "annotations": {name: text for name, text in self.annotations.items() if text},
            "startsAt": _time(self.began_at),
        }
        if self.ended_at is not None:
            data["endsAt"] = _time(max(self.ended_at, self.began_at))
        return data


class AlertSender:
    """Sends alerts to one receiver. Owns one task between the first `send` and `close`."""

    def __init__(self, url: str, again_seconds: float = SEND_AGAIN_SECONDS) -> None:
        self._url, self._again_seconds = url, again_seconds
        self._alerts: dict[tuple[tuple[str, str], ...], OutsideAlert] = {}
        """The newest state of each alert that goes on, or whose end was not sent yet."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def send(self, alert: OutsideAlert) -> None:
        """Send an alert now, and again until it ends."""
        key = tuple(sorted(alert.labels.items()))
        if key not in self._alerts and len(self._alerts) >= MOST_ALERTS:
            ended = (one for one, known in self._alerts.items() if known.ended_at is not None)
            del self._alerts[next(ended, next(iter(self._alerts)))]
        self._alerts[key] = alert
        self._changed.set()
        self._task = self._task or asyncio.create_task(self._run())

    async def close(self, seconds: float) -> None:
        """Send what was not sent, for so long at most."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._changed.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._post()
            except TimeoutError:
                log.warning("%s did not take the last alerts in time", self._url)

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
        body = json.dumps([alert.to_data() for alert in sent.values()]).encode()
        try:
            await asyncio.to_thread(_call, self._url, body)
        except OSError as error:
            log.warning("%s did not take alerts: %s", self._url, error)
            return
        for key, alert in sent.items():
            if alert.ended_at is not None and self._alerts.get(key) is alert:
                del self._alerts[key]


def _call(url: str, body: bytes) -> None:
    """Raises OSError, also for a status that is an error."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
    try:
        urllib.request.urlopen(request, timeout=CALL_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        raise


def _time(unix: float) -> str:
    """RFC 3339."""
    return datetime.fromtimestamp(unix, UTC).isoformat()
