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

A run that becomes slow on a node with an open incident of a run that is over raises one of its own, because it compares
with the node as it was when it came. The earlier incident is set aside until that of the later run has ended, and goes
on then. When both runs are over, one of the two incidents ends (`incident_book`).

Evidence is kept by witness: the organisation whose run was beside the micro-benchmarks, or nobody on the idle node. A
run that takes more of its own core while it is measured makes any node look slow, so what one organisation shows is for
its own run alone. An incident is established, and others hear of it, once the idle node or a second organisation shows
it as well.
"""

from __future__ import annotations

import logging
import secrets
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from pharoah_learning.models.cross_validation import ALARM_LOG_ODDS, Comparison, evidence, has_recovered
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
from pharoah_protocol.vocabulary import Resource
from pharoah_provider.domain import IncidentKind, Run, Subject, Transition
from pharoah_provider.monitoring.incident_advice import slow_resource

log = logging.getLogger("pharoah.provider.monitoring")

FIRST_PAUSE_SECONDS = 4.0
"""Before a suspicion is validated for the second time: a validation takes about this long."""
UNDECIDED_PAUSE_SECONDS = 2.0
"""Pause while the evidence speaks against the node without being enough."""
MAX_PAUSE_SECONDS = 60.0
"""Pause under the run that raised the incident: its tenant waits for the answer."""
MAX_IDLE_PAUSE_SECONDS = 600.0
"""Pause on a node where no run waits for the answer, and beside runs that came later."""
SUSPICION_SECONDS = 86_400.0
"""A suspicion that nothing could validate for a day is dismissed. If the node is still slow, the next run that becomes
slow there raises another one within seconds; if it is not, nobody has to look at it any more."""
IDLE = ""
"""The witness of a validation on an idle node: no run can have caused what it shows."""
ASKED = "the tenant of a run on it has asked for a validation"
"""The evidence of a suspicion that a question has raised, until it is validated."""
MIN_ORGANISATIONS = 2
"""Organisations whose runs establish an incident together."""


@dataclass
class Incident:
    """An incident of one resource."""

    subject: Subject
    state: IncidentState = QUIET
    incident_id: str = ""
    kind: IncidentKind = IncidentKind.SLOW
    raised_by: bytes = b""
    organisation: str = ""
    """Whose run has raised it; empty when that is not known any more."""
    since: float = 0.0
    changed_at: float = 0.0
    raised_at: float = 0.0
    """When it was suspected by the clock of the provider, in unix seconds; 0 when that is not known any more."""
    step_ratio: float = 1.0
    """Step time of the run that raised it, over its own baseline, when it was suspected."""
    text: str = ""
    """Evidence, for people."""
    established: bool = False
    """Whether the idle node or runs of two organisations have shown it."""
    resource: Resource | None = None
    """What is short or sick, as far as validations have shown it."""
    asked: bool = False
    """Whether a question of a tenant has raised it, and nothing else."""
    validations: dict[str, dict[str, list[Comparison]]] = field(default_factory=lambda: defaultdict(dict))
    """What the validations of this incident showed, oldest first, by witness and by benchmark."""
    _validate_at: float = 0.0
    _pause: float = FIRST_PAUSE_SECONDS

    @classmethod
    def restore(cls, last: Transition, organisation: str) -> Incident:
        """An open incident as it was stored, raised by a run of an organisation. Its validations are not stored: they
        begin anew."""
        return cls(
            subject=last.subject,
            state=last.state,
            incident_id=last.incident_id,
            kind=last.kind,
            raised_by=last.raised_by,
            organisation=organisation,
            since=last.since,
            changed_at=last.changed_at,
            step_ratio=last.step_ratio,
            text=last.evidence,
            asked=last.evidence == ASKED,
            established=last.established and last.state.is_reported,
            resource=last.resource,
        )

    @property
    def quiet(self) -> bool:
        return self.state is QUIET

    @property
    def confirmed(self) -> bool:
        """Whether it was confirmed and goes on."""
        return self.state.is_open and self.state.is_reported

    @property
    def unanswered(self) -> bool:
        """Whether a question of a tenant has raised it, and nothing was measured since."""
        return not self.quiet and self.asked and self.text == ASKED

    def is_left_behind(self, runs: Collection[bytes]) -> bool:
        """Whether the run that raised it is over and no other run hears of it; `runs`: the ids of those on its node."""
        return not self.quiet and not self.established and self.raised_by not in runs

    def is_earlier_than(self, run: Run | None) -> bool:
        """Whether a run came to the node after the incident was raised, so that it has only seen the node since then.
        False for None, an idle node."""
        return run is not None and self.raised_by != run.run_id and run.joined_at >= self.raised_at

    def apply_rules(self, now: float) -> IncidentState | None:
        """Follow the rules of states that other distributions have added; `now` in unix seconds. Returns the new state
        when it changed."""
        facts = IncidentFacts(state=self.state.name, kind=self.kind, open_seconds=now - self.since)
        for state in INCIDENT_STATES:
            if state.rule and facts.state in state.rule.reached_from and _holds(state, state.rule, facts):
                self.state = state if state.is_open else QUIET
                return state
        return None

    def suspect(
        self, since: float, run: Run, step_ratio: float = 1.0, kind: IncidentKind = IncidentKind.SLOW
    ) -> IncidentState | None:
        """A counter of a run has fired, for what began at unix time `since`. Returns the new state when it changed."""
        if not self.quiet:
            return None
        self.incident_id = f"al-{secrets.token_hex(6)}"
        self.raised_by, self.organisation = run.run_id, run.organisation
        self.since, self.step_ratio, self.kind = since, step_ratio, kind
        self._validate_at, self._pause, self.text = 0.0, FIRST_PAUSE_SECONDS, ""
        self.validations, self.established, self.resource = defaultdict(dict), False, None
        self.state, self.asked = SUSPECTED, False
        return self.state

    def calm(self) -> IncidentState | None:
        """Nothing speaks against the node any more. Returns how the incident ended, when there was one."""
        if self.quiet:
            return None
        was, self.state = self.state, QUIET
        return CLEARED if was.is_reported else DISMISSED

    def has_expired(self, now: float) -> bool:
        """Whether it is a suspicion that nothing could validate for too long; `now` in unix seconds."""
        return self.state is SUSPECTED and now - self.changed_at >= SUSPICION_SECONDS

    def wants_validation(self, now: float, longest_pause: float = MAX_PAUSE_SECONDS) -> bool:
        """Whether to run micro-benchmarks now (in seconds of a steady clock). A second question before the first is
        answered would be pointless, so each one begins a pause."""
        if self.quiet or now < self._validate_at:
            return False
        if self.state is SUSPECTED and self.doubted:
            self._validate_at, self._pause = now + UNDECIDED_PAUSE_SECONDS, FIRST_PAUSE_SECONDS
        else:
            self._validate_at = now + self._pause
            self._pause = min(2 * self._pause, longest_pause)
        return True

    @property
    def doubted(self) -> bool:
        """Whether the validations so far speak against the node."""
        return any(self.evidence(witness) > 0 for witness in self.validations)

    def validate(self, comparisons: Sequence[Comparison], witness: str) -> IncidentState | None:
        """One more validation, a comparison for each benchmark. Returns the new state when it changed, and the same
        state again when it became established.

        `witness` is the organisation of the run beside which it was made, or IDLE. On an idle node health ends a
        suspicion as well; beside a job that is still slow it does not, because the next validation may show more.
        """
        shown = self.validations[witness]
        for comparison in comparisons:
            shown.setdefault(comparison.benchmark, []).append(comparison)
        self.resource = slow_resource(shown) or self.resource
        healthy = bool(shown) and all(map(has_recovered, shown.values()))
        if healthy and (witness == IDLE or self.confirmed):
            return self.calm()
        return self._note_slow() if self.evidence(witness) > ALARM_LOG_ODDS else None

    def evidence(self, witness: str, benchmark: str = "") -> float:
        """How strongly the validations of a witness speak against the node, by one benchmark or by the clearest; 0 when
        they do not."""
        shown = self.validations.get(witness, {})
        return max((evidence(shown[name]) for name in shown if benchmark in ("", name)), default=0.0)

    def _note_slow(self) -> IncidentState | None:
        """A witness has shown the node slow. Returns what changes by it."""
        against = [witness for witness in self.validations if self.evidence(witness) > ALARM_LOG_ODDS]
        becomes_established = not self.established and (IDLE in against or len(against) >= MIN_ORGANISATIONS)
        self.established |= becomes_established
        if self.state is SUSPECTED:
            self.state, self._pause = CONFIRMED, FIRST_PAUSE_SECONDS
            return self.state
        return self.state if becomes_established and self.confirmed else None


def _holds(state: IncidentState, rule: Rule, facts: IncidentFacts) -> bool:
    """The answer of a rule; one that raises does not hold."""
    try:
        return bool(rule.holds(facts))
    except Exception:
        log.exception("the rule of incident state %s cannot be evaluated", state)
        return False
