"""The alerts of one run that its own machine raises: each fires once and is resolved once."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pharoah._alert import Alert
from pharoah.local_alerts._detector import Condition
from pharoah_protocol.incident_states import CLEARED, CONFIRMED, IncidentState

log = logging.getLogger("pharoah.sidecar")

MIN_LOOKS = 3
"""A condition must hold for so many looks in a row before it fires."""
CALM_SECONDS = 30.0
"""A condition that has not held for so long is resolved."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 60.0, 3600.0
"""How long the same condition does not fire again after it was resolved; the pause doubles each time."""
MAX_ALERTS, DAY_SECONDS = 24, 86_400.0
"""The budget of a job: alerts that fire in a day."""


@dataclass
class _Entry:
    """One key."""

    looks: int = 0
    seen_at: float = 0.0
    fired: Condition | None = None
    times: int = 0
    quiet_until: float = 0.0


@dataclass
class AlertBook:
    """Turns what holds into alerts. Times are seconds of the monotonic clock, but for those in conditions."""

    run: str
    """Begins the id of each alert."""
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _fired_at: deque[float] = field(default_factory=deque)

    def update(self, at: float, unix: float, holding: Iterable[Condition]) -> Iterator[Alert]:
        """What changes by a look at which these conditions hold."""
        conditions = {condition.key: condition for condition in holding}
        for key, condition in conditions.items():
            entry = self._entries.setdefault(key, _Entry())
            entry.looks, entry.seen_at = entry.looks + 1, at
            if entry.fired is None and entry.looks >= MIN_LOOKS and at >= entry.quiet_until and self._may_fire(at):
                entry.fired, entry.times = condition, entry.times + 1
                yield self._alert(condition, entry, CONFIRMED, unix)
        for key, entry in self._entries.items():
            if key in conditions:
                continue
            entry.looks = 0
            if entry.fired is not None and at - entry.seen_at >= CALM_SECONDS:
                resolved, entry.fired = entry.fired, None
                pause = min(FIRST_PAUSE_SECONDS * 2 ** min(entry.times - 1, 16), MAX_PAUSE_SECONDS)
                entry.quiet_until = at + pause
                yield self._alert(resolved, entry, CLEARED, unix)

    def _may_fire(self, at: float) -> bool:
        while self._fired_at and at - self._fired_at[0] >= DAY_SECONDS:
            self._fired_at.popleft()
        if len(self._fired_at) >= MAX_ALERTS:
            return False
        self._fired_at.append(at)
        if len(self._fired_at) == MAX_ALERTS:
            log.warning("this run has raised %d alerts in a day; no more come until tomorrow", MAX_ALERTS)
        return True

    def _alert(self, condition: Condition, entry: _Entry, state: IncidentState, unix: float) -> Alert:
        return Alert(
            alert_id=f"{self.run[:8]}-{condition.key}-{entry.times}",
            state=state,
            node_alias=condition.where,
            fault_domain=condition.fault_domain.value,
            what=condition.what,
            evidence=condition.evidence,
            since=condition.since,
            at=unix,
            step_ratio=condition.step_ratio,
            resource=condition.resource,
            likely=condition.likely,
            action=condition.action,
            failure_from=condition.failure_from,
            failure_until=condition.failure_until,
            checkpoint=condition.checkpoint,
            validation=condition.validation,
        )
