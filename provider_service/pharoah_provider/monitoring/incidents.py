"""The life of one incident of a node, as a pure state machine: fired counters and validations in, transitions out.

    quiet ── the counter of any rank fires ──▶ suspected ── validation confirms ──▶ confirmed
                                                   │                                    │
             all ranks of the run that raised it   │          all ranks of the run that │
             are clean, the idle node is validated │          raised it are clean, or   │
             healthy, or a day without validation  ▼          validated healthy         ▼
                                               dismissed                             cleared
                                     (no tenant has heard of it)

An incident belongs to its node and outlives the run that raised it. A run that came later cannot clear it by being
clean: it took its own baseline on the node as it is. An incident is confirmed once and cleared once; then the next one
begins. Validations add up until they are enough; while they speak for the node the pause before the next one grows.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from pharoah_learning.models.cross_validation import ALARM_LOG_ODDS, Comparison, evidence, recovered
from pharoah_protocol.incident_states import (
    CLEARED,
    CONFIRMED,
    DISMISSED,
    INCIDENT_STATES,
    QUIET,
    SUSPECTED,
    IncidentFacts,
    IncidentState,
    Rule,
)
from pharoah_provider.domain import IncidentKind, Resource, Transition

log = logging.getLogger("pharoah.provider.monitoring")

FIRST_PAUSE_SECONDS = 4.0
"""Before a suspicion is validated for the second time: a validation takes about this long."""
UNDECIDED_PAUSE_SECONDS = 2.0
"""Pause while the evidence speaks against the node without being enough."""
LONGEST_PAUSE_SECONDS = 60.0
"""Pause under the run that raised the incident: its tenant waits for the answer."""
LONGEST_IDLE_PAUSE_SECONDS = 600.0
"""Pause on a node where no run waits for the answer, and beside runs that came later."""
SUSPICION_SECONDS = 86_400.0
"""A suspicion that nothing could validate for a day is dismissed. If the node is still slow, the next run that becomes
slow there raises another one within seconds; if it is not, nobody has to look at it any more."""


@dataclass
class Incident:
    """The newest incident of one resource."""

    resource: Resource
    state: IncidentState = QUIET
    incident_id: str = ""
    kind: IncidentKind = IncidentKind.SLOW
    raised_by: bytes = b""
    since: float = 0.0
    changed_at: float = 0.0
    step_ratio: float = 1.0
    """Step time of the run that raised it, over its own baseline, when it was suspected."""
    text: str = ""
    """Evidence, for people."""
    validations: dict[str, list[Comparison]] = field(default_factory=dict)
    """What the validations of this suspicion showed, oldest first, by benchmark."""
    _validate_at: float = 0.0
    _pause: float = FIRST_PAUSE_SECONDS

    @classmethod
    def restored(cls, last: Transition) -> Incident:
        """An open incident as it was stored. Its validations are not: they begin anew."""
        return cls(
            resource=last.resource,
            state=last.state,
            incident_id=last.incident_id,
            kind=last.kind,
            raised_by=last.raised_by,
            since=last.since,
            changed_at=last.changed_at,
            step_ratio=last.step_ratio,
            text=last.evidence,
        )

    @property
    def quiet(self) -> bool:
        return self.state is QUIET

    @property
    def confirmed(self) -> bool:
        """Whether it was confirmed and goes on."""
        return self.state.is_open and self.state.is_reported

    def ruled(self, now: float) -> IncidentState | None:
        """Follow the rules of states that other distributions have added; `now` in unix seconds. Returns the new state
        when it changed."""
        facts = IncidentFacts(state=self.state.name, kind=self.kind, open_seconds=now - self.since)
        for state in INCIDENT_STATES:
            if state.rule and facts.state in state.rule.reached_from and _holds(state, state.rule, facts):
                self.state = state if state.is_open else QUIET
                return state
        return None

    def suspect(
        self, since: float, raised_by: bytes, step_ratio: float = 1.0, kind: IncidentKind = IncidentKind.SLOW
    ) -> IncidentState | None:
        """A counter has fired, for what began at unix time `since`. Returns the new state when it changed."""
        if not self.quiet:
            return None
        self.incident_id = f"al-{secrets.token_hex(6)}"
        self.since, self.raised_by, self.step_ratio, self.kind = since, raised_by, step_ratio, kind
        self._validate_at, self._pause, self.validations, self.text = 0.0, FIRST_PAUSE_SECONDS, {}, ""
        self.state = SUSPECTED
        return self.state

    def calmed(self) -> IncidentState | None:
        """Nothing speaks against the node any more. Returns how the incident ended, when there was one."""
        if self.quiet:
            return None
        was, self.state = self.state, QUIET
        return CLEARED if was.is_reported else DISMISSED

    def expired(self, now: float) -> bool:
        """Whether it is a suspicion that nothing could validate for too long; `now` in unix seconds."""
        return self.state is SUSPECTED and now - self.changed_at >= SUSPICION_SECONDS

    def wants_validation(self, now: float, longest_pause: float = LONGEST_PAUSE_SECONDS) -> bool:
        """Whether to run micro-benchmarks now (in seconds of a steady clock). A second question before the first is
        answered would be pointless, so each one begins a pause."""
        if self.quiet or now < self._validate_at:
            return False
        if self.state is SUSPECTED and any(map(self.evidence, self.validations)):
            self._validate_at, self._pause = now + UNDECIDED_PAUSE_SECONDS, FIRST_PAUSE_SECONDS
        else:
            self._validate_at = now + self._pause
            self._pause = min(2 * self._pause, longest_pause)
        return True

    def validated(self, comparisons: Sequence[Comparison], *, idle: bool = False) -> IncidentState | None:
        """One more validation, a comparison for each benchmark. Returns the new state when it changed.

        `idle`: no job ran on the node. Then health ends a suspicion as well; beside a job that is still slow it does
        not, because the next validation may show more.
        """
        for comparison in comparisons:
            self.validations.setdefault(comparison.benchmark, []).append(comparison)
        strongest = max(map(self.evidence, self.validations), default=0.0)
        if self.state is SUSPECTED and strongest > ALARM_LOG_ODDS:
            self.state, self._pause = CONFIRMED, FIRST_PAUSE_SECONDS
            return self.state
        healthy = bool(self.validations) and all(map(recovered, self.validations.values()))
        if healthy and (idle or self.confirmed):
            return self.calmed()
        return None

    def evidence(self, benchmark: str) -> float:
        """How strongly the validations of a benchmark speak against the node; 0 when they do not."""
        return evidence(self.validations.get(benchmark, ()))


def _holds(state: IncidentState, rule: Rule, facts: IncidentFacts) -> bool:
    """The answer of a rule; one that raises does not hold."""
    try:
        return bool(rule.holds(facts))
    except Exception:
        log.exception("the rule of incident state %s cannot be evaluated", state)
        return False
