"""Sends the alerts of a run to a receiver that the user names."""

from __future__ import annotations

from pharoah._alert import Alert
from pharoah_protocol.alertmanager import AlertSender, OutsideAlert


def outside_alert(alert: Alert, run: str) -> OutsideAlert:
    """An alert as its receiver gets it."""
    return OutsideAlert(
        key=alert.alert_id,
        labels={
            "alertname": "Pharoah",
            "alert_id": alert.alert_id,
            "run": run,
            "where": alert.node_alias,
            "resource": alert.resource or "unknown",
            "fault_domain": alert.fault_domain,
            "severity": "critical" if alert.checkpoint else "warning",
        },
        annotations={
            "summary": alert.what,
            "description": alert.evidence,
            "likely": alert.likely,
            "action": alert.action,
        },
        began_at=alert.since,
        ended_at=None if alert.state.is_open else alert.at,
    )


class AlertWebhook:
    """The receiver of the alerts of one run, if the user has named one."""

    def __init__(self, url: str, run_id: bytes) -> None:
        """`url`: empty for none."""
        self._sender = AlertSender(url) if url else None
        self._run = run_id.hex()

    def send(self, alert: Alert) -> None:
        if self._sender is not None:
            self._sender.send(outside_alert(alert, self._run))

    async def close(self, seconds: float) -> None:
        """Send the last alerts, for so long at most."""
        if self._sender is not None:
            await self._sender.close(seconds)
