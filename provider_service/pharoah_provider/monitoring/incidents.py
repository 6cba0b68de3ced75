"""The life of one incident, as a pure state machine: fired counters and validations in, transitions out.

    quiet ── the counter of any rank fires ──▶ suspected ── validation confirms ──▶ confirmed ──▶ cleared
                                                   │                                 all ranks of the run that raised
                                                   │                                 it are clean, or validated healthy
                                                   └── all ranks are clean ──▶ dismissed (no tenant has heard of it)

An incident is confirmed once and cleared once; then the next one begins. Validations add up until they are enough; as
long as they speak for the node's health the pause before the next one grows.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from pharoah_learning.models.cross_validation import ALARM_LOG_ODDS, Comparison, evidence, recovered
from pharoah_protocol.vocabulary import IncidentState

FIRST_PAUSE_SECONDS = 4.0
"""Before a suspicion is validated for the second time: a validation takes about this long."""
UNDECIDED_PAUSE_SECONDS = 2.0
"""Pause while the evidence speaks against the node without being enough."""
LONGEST_PAUSE_SECONDS = 60.0


@dataclass
class Incident:
    """What is suspected or confirmed."""

    state: IncidentState = IncidentState.QUIET
    incident_id: str = ""
    since: float = 0.0
    validations: dict[str, list[Comparison]] = field(default_factory=dict)
    """What the validations of this suspicion showed, oldest first, by benchmark."""
    _validate_at: float = 0.0
    _pause: float = FIRST_PAUSE_SECONDS

    @property
    def quiet(self) -> bool:
        return self.state is IncidentState.QUIET

    def suspect(self, since: float) -> IncidentState | None:
        """A counter has fired, for what began at unix time `since`. Returns the new state when it changed."""
        if not self.quiet:
            return None
        self.incident_id, self.since = f"al-{secrets.token_hex(6)}", since
        self._validate_at, self._pause, self.validations = 0.0, FIRST_PAUSE_SECONDS, {}
        self.state = IncidentState.SUSPECTED
        return self.state

    def calmed(self) -> IncidentState | None:
        """All ranks are clean again. Returns how the incident ended, when there was one."""
        if self.quiet:
            return None
        was, self.state = self.state, IncidentState.QUIET
        return IncidentState.CLEARED if was is IncidentState.CONFIRMED else IncidentState.DISMISSED

    def wants_validation(self, now: float) -> bool:
        """Whether to run micro-benchmarks now (in seconds of a steady clock). A second question before the first is
        answered would be pointless, so each one begins a pause."""
        if self.quiet or now < self._validate_at:
            return False
        if self.state is IncidentState.SUSPECTED and any(map(self.evidence, self.validations)):
            self._validate_at, self._pause = now + UNDECIDED_PAUSE_SECONDS, FIRST_PAUSE_SECONDS
        else:
            self._validate_at = now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return True

    def validated(self, comparisons: Sequence[Comparison]) -> IncidentState | None:
        """One more validation, a comparison for each benchmark. Returns the new state when it changed."""
        for comparison in comparisons:
            self.validations.setdefault(comparison.benchmark, []).append(comparison)
        strongest = max(map(self.evidence, self.validations), default=0.0)
        if self.state is IncidentState.SUSPECTED and strongest > ALARM_LOG_ODDS:
            self.state, self._pause = IncidentState.CONFIRMED, FIRST_PAUSE_SECONDS
            return self.state
        if self.state is IncidentState.CONFIRMED and all(map(recovered, self.validations.values())):
            return self.calmed()
        return None

    def evidence(self, benchmark: str) -> float:
        """How strongly the validations of a benchmark speak against the node; 0 when they do not."""
        return evidence(self.validations.get(benchmark, ()))
