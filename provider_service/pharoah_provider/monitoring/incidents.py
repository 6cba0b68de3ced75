"""The life of one alert, as a pure state machine: windows and validations in, transitions out.

    quiet ──2 of 3 windows risky──▶ suspected ──validation confirms──▶ confirmed ──5 clean windows──▶ cleared
                                        └───────5 clean windows──▶ quiet (nobody was told)

An alert fires once and is resolved once. Validations add up until they are enough; as long as they speak for the
node's health the pause before the next one grows.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from pharoah_provider.models.compare import ALARM

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
    evidence: dict[str, float] = field(default_factory=dict)
    """By benchmark: what validations of this suspicion add up to, never below zero."""
    _recent: deque[bool] = field(default_factory=lambda: deque(maxlen=max(RISKY_OF[1], CLEAN_WINDOWS)))
    _validate_at: float = 0.0
    _pause: float = FIRST_PAUSE_SECONDS

    def window(self, risky: bool, began: float) -> str | None:
        """One more window that began at unix time `began`. Returns the new state when it changed."""
        self._recent.append(risky)
        needed, of = RISKY_OF
        recent = list(self._recent)
        if self.state == "quiet" and sum(recent[-of:]) >= needed:
            self.state, self.alert_id, self.since = "suspected", f"al-{secrets.token_hex(3)}", began
            self._validate_at, self._pause = 0.0, FIRST_PAUSE_SECONDS
            self.evidence = {}
            return "suspected"
        if self.state != "quiet" and len(recent) >= CLEAN_WINDOWS and not any(recent[-CLEAN_WINDOWS:]):
            was, self.state = self.state, "quiet"
            return "cleared" if was == "confirmed" else "dismissed"
        return None

    def wants_validation(self, now: float) -> bool:
        """Whether to run micro-benchmarks now; asking again before the answer is pointless, so it waits a pause."""
        risky = bool(self._recent) and self._recent[-1]
        if self.state != "suspected" or not risky or now < self._validate_at:
            return False
        if any(self.evidence.values()):
            self._validate_at, self._pause = now + UNDECIDED_PAUSE_SECONDS, FIRST_PAUSE_SECONDS
        else:
            self._validate_at = now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return True

    def validated(self, gains: Mapping[str, float]) -> str | None:
        """What one validation adds, by benchmark (see `models.compare`). Returns the new state when it changed."""
        for benchmark, gain in gains.items():
            self.evidence[benchmark] = max(0.0, self.evidence.get(benchmark, 0.0) + gain)
        if self.state == "suspected" and max(self.evidence.values(), default=0.0) > ALARM:
            self.state = "confirmed"
            return "confirmed"
        return None
