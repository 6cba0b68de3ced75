"""When the provider is asked to validate the node of a run: after which alerts, and at which times.

Asking is one bit, and its time is all that it shows: a round minute of the run, and no more often than every ten
minutes. The sidecar asks by itself (PHAROAH_ASK_VALIDATION) only after alerts whose cause micro-benchmarks may show and
which is not the job: what a job does to itself, such as a disk that it fills, would say which job it is (`python -m
evaluation privacy --part reports`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from pharoah._alert import Alert

ROUND_SECONDS, PAUSE_SECONDS = 60.0, 600.0
"""A validation is asked for at round minutes of the run, and at most every ten minutes."""
MINUTE_BEGINS_SECONDS = 1.0
"""A minute is round for so long: reports, between which it is asked, leave once a second."""


def calls_for_validation(alert: Alert) -> bool:
    """Whether a validation of the node may find what this alert of the own machine is about."""
    return alert.state.is_open and alert.validation


@dataclass
class AskedValidation:
    """Whether a validation is wanted, and when it may be asked for. Times are monotonic seconds."""

    wanted: bool = False
    _asked_at: float = -inf

    def due(self, now: float, join_time: float) -> bool:
        """Whether it is asked for now; then the question counts as asked."""
        late = (now - join_time) % ROUND_SECONDS
        if not self.wanted or late >= MINUTE_BEGINS_SECONDS or now - self._asked_at < PAUSE_SECONDS:
            return False
        self.wanted, self._asked_at = False, now
        return True
