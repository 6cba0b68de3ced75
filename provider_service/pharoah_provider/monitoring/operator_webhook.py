"""Sends incidents to an Alertmanager of the operator, or to what takes the same calls."""

from __future__ import annotations

from collections.abc import Iterable

from pharoah_protocol.alertmanager import AlertSender, OutsideAlert
from pharoah_provider.domain import Transition
from pharoah_provider.monitoring.incident_advice import advice


def outside_alert(change: Transition) -> OutsideAlert:
    """An incident as its receiver gets it. It names no run and no tenant: receivers keep what they get.

    Nothing that becomes known later is a label: to an Alertmanager an alert with other labels is another alert.
    """
    shown = change.public()
    return OutsideAlert(
        key=change.incident_id,
        labels={
            "alertname": "PharoahIncident",
            "incident": change.incident_id,
            "kind": change.kind,
            "subject": change.subject.name,
            "subject_kind": change.subject.kind,
            "fault_domain": change.fault_domain,
            "severity": "warning",
        },
        annotations={
            "summary": shown.what,
            "description": shown.evidence,
            "likely": advice(change).likely,
            "resource": change.resource or "unknown",
        },
        began_at=change.since,
        ended_at=None if change.state.is_open else change.changed_at,
    )


class OperatorWebhook:
    """The receiver of all incidents that are confirmed or over."""

    def __init__(self, url: str) -> None:
        """`url`: empty for none."""
        self._sender = AlertSender(url) if url else None

    def restore(self, changes: Iterable[Transition]) -> None:
        """After a restart: open incidents are sent again, or Alertmanager would forget them."""
        for change in changes:
            self.send(change)

    def send(self, change: Transition) -> None:
        if self._sender is not None and change.state.is_reported:
            self._sender.send(outside_alert(change))

    async def close(self, seconds: float) -> None:
        """Send the last ones, for so long at most."""
        if self._sender is not None:
            await self._sender.close(seconds)
