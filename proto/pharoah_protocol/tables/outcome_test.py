"""Whether verdicts are kept: a tenant's own outcomes against what it was told, by a sequential test.

Proofs show that everybody is told the same, not that it is true. A provider that leaves out rows, or seals rosier
ones, is found by the jobs it said would work. Page's cumulative sum (Biometrika 41, 1954) over runs that were called
compatible: they fail for reasons of their own, as jobs do (10 %), or from some run on three times as often. It never
ends, so what a provider did well for long excuses nothing; and it may be looked at after every run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log

USUAL_RATIO = 0.1
SUSPICIOUS_RATIO = 0.3
ALARM = 9.0
"""Of the log likelihood ratio: under an honest provider at most two tenants in a hundred reach it within 1,000 runs."""


@dataclass(frozen=True)
class Tally:
    """Runs called compatible, and what became of them."""

    runs: int = 0
    failures: int = 0
    evidence: float = 0.0
    """Cumulative log likelihood ratio of the suspicious over the usual rate, never below 0."""
    alarmed: bool = False
    """Whether the evidence has ever reached the alarm."""

    def add(self, failed: bool) -> Tally:
        ratio = SUSPICIOUS_RATIO / USUAL_RATIO if failed else (1 - SUSPICIOUS_RATIO) / (1 - USUAL_RATIO)
        evidence = max(0.0, self.evidence + log(ratio))
        return Tally(self.runs + 1, self.failures + failed, evidence, self.alarmed or evidence >= ALARM)


def tally(failed: Iterable[bool]) -> Tally:
    """Over runs in the order in which they began."""
    total = Tally()
    for one in failed:
        total = total.add(one)
    return total
