"""The life of one alert, as a pure state machine: windows and validations in, transitions out.

    quiet ──2 of 3 windows risky──▶ suspected ──validation confirms──▶ confirmed ──5 clean windows, or──▶ cleared
                                        │                                          validated healthy
                                        └───────5 clean windows──▶ quiet (nobody was told)

An alert fires once and is resolved once. Validations add up until they are enough; as long as they speak for the
node's health the pause before the next one grows.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pharoah_learning.models.cross_validation import ALARM_LOG_ODDS, Comparison, evidence, recovered

RISKY_OF = (2, 3)
CLEAN_WINDOWS = 5
FIRST_PAUSE_SECONDS = 4.0
UNDECIDED_PAUSE_SECONDS = 2.0
"""While the evidence speaks against the node without being enough."""
LONGEST_PAUSE_SECONDS = 60.0


@dataclass
class Incident:
    """What is believed about the node under one run."""

    state: str = "quiet"
    alert_id: str = ""
    since: float = 0.0
    validations: dict[str, list[Comparison]] = field(default_factory=dict)
    """By benchmark: what this suspicion's validations showed, oldest first."""
    _recent: deque[bool] = field(default_factory=lambda: deque(maxlen=max(RISKY_OF[1], CLEAN_WINDOWS)))
    _validate_at: float = 0.0
    _pause: float = FIRST_PAUSE_SECONDS

    def window(self, risky: bool, began: float) -> str | None:
        """One more window that began at unix time `began`. Returns the new state when it changed."""
        self._recent.append(risky)
        needed, of = RISKY_OF
        recent = list(self._recent)
        if self.state == "quiet" and sum(recent[-of:]) >= needed:
            self.state, self.alert_id, self.since = "suspected", f"al-{secrets.token_hex(6)}", began
            self._validate_at, self._pause = 0.0, FIRST_PAUSE_SECONDS
            self.validations = {}
            return "suspected"
        if self.state != "quiet" and len(recent) >= CLEAN_WINDOWS and not any(recent[-CLEAN_WINDOWS:]):
            was, self.state = self.state, "quiet"
            return "cleared" if was == "confirmed" else "dismissed"
        return None

    def calm(self) -> bool:
        """Whether nothing speaks against the node now."""
        return self.state == "quiet" and not any(list(self._recent)[-RISKY_OF[1] :])

    def wants_validation(self, now: float) -> bool:
        """Whether to run micro-benchmarks now; asking again before the answer is pointless, so it waits a pause."""
        risky = bool(self._recent) and self._recent[-1]
        if self.state == "quiet" or not risky or now < self._validate_at:
            return False
        if self.state == "suspected" and any(map(self.evidence, self.validations)):
            self._validate_at, self._pause = now + UNDECIDED_PAUSE_SECONDS, FIRST_PAUSE_SECONDS
        else:
            self._validate_at = now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return True

    def validated(self, comparisons: Sequence[Comparison]) -> str | None:
        """One more validation, a comparison for each benchmark. Returns the new state when it changed."""
        for comparison in comparisons:
            self.validations.setdefault(comparison.benchmark, []).append(comparison)
        if self.state == "suspected" and max(map(self.evidence, self.validations), default=0.0) > ALARM_LOG_ODDS:
            self.state, self._pause = "confirmed", FIRST_PAUSE_SECONDS
            return "confirmed"
        if self.state == "confirmed" and all(map(recovered, self.validations.values())):
            self.state = "quiet"
            return "cleared"
        return None

    def evidence(self, benchmark: str) -> float:
        """How strongly a benchmark's validations speak against the node; 0 when they do not."""
        return evidence(self.validations.get(benchmark, ()))
