"""Outcome test: do jobs with the verdict `compatible` fail more often than they should? A sequential test.

Proofs show that all tenants get the same rows, not that the rows are true. A provider that leaves out rows, or seals
better ones, is detected by the jobs that it called compatible. The test is Page's cumulative sum (Biometrika 41, 1954)
over those runs: either they fail for reasons of their own (10 %), or from some run on three times as often. The test
never ends, so a long good history does not outweigh later failures, and it may be evaluated after every run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log

USUAL_RATIO = 0.1
"""Ratio of compatible jobs that fail for reasons of their own."""
SUSPICIOUS_RATIO = 0.3
ALARM_EVIDENCE = 9.0
"""Cumulative log likelihood ratio. Under an honest provider at most two tenants in a hundred reach it within 1,000 runs
(tests/contract/test_audit.py)."""


@dataclass(frozen=True)
class Tally:
    """Runs with the verdict `compatible`, and their outcomes."""

    runs: int = 0
    failures: int = 0
    evidence: float = 0.0
    """Cumulative log likelihood ratio of the suspicious over the usual rate, never below 0."""
    alarmed: bool = False
    """Whether the evidence has ever reached the alarm."""

    def add(self, failed: bool) -> Tally:
        """The tally with one more run."""
        ratio = SUSPICIOUS_RATIO / USUAL_RATIO if failed else (1 - SUSPICIOUS_RATIO) / (1 - USUAL_RATIO)
        evidence = max(0.0, self.evidence + log(ratio))
        return Tally(
            runs=self.runs + 1,
            failures=self.failures + failed,
            evidence=evidence,
            alarmed=self.alarmed or evidence >= ALARM_EVIDENCE,
        )


def tally(failed: Iterable[bool]) -> Tally:
    """The tally of runs, in the order in which they began."""
    total = Tally()
    for run_failed in failed:
        total = total.add(run_failed)
    return total
