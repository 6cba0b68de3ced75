"""Whether verdicts are kept: a tenant's own outcomes against what it was told, by a sequential test.

Proofs show that everybody is told the same, not that it is true. A provider that leaves out rows, or seals rosier
ones, is found by the jobs it said would work. Wald's sequential probability ratio test (Wald 1945) on runs that were
called compatible: H0, they fail for reasons of their own, as jobs do (10 %); H1, three times as often.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log

USUAL_RATIO = 0.1
SUSPICIOUS_RATIO = 0.3
ERROR_RATIO = 0.01
"""Of either kind."""
_LIMIT = log((1 - ERROR_RATIO) / ERROR_RATIO)


@dataclass(frozen=True)
class Tally:
    """Runs called compatible, and what became of them."""

    runs: int = 0
    failures: int = 0
    evidence: float = 0.0
    """Log likelihood ratio of H1 over H0; above zero speaks against the provider."""
    decided: str = ""
    """`kept` or `not kept`, once the evidence has reached a limit; a test does not go on after its end."""

    def add(self, failed: bool) -> Tally:
        if self.decided:
            return Tally(self.runs + 1, self.failures + failed, self.evidence, self.decided)
        ratio = SUSPICIOUS_RATIO / USUAL_RATIO if failed else (1 - SUSPICIOUS_RATIO) / (1 - USUAL_RATIO)
        evidence = self.evidence + log(ratio)
        decided = "not kept" if evidence >= _LIMIT else "kept" if evidence <= -_LIMIT else ""
        return Tally(self.runs + 1, self.failures + failed, evidence, decided)


def tally(failed: Iterable[bool]) -> Tally:
    """Over runs in the order in which they ended."""
    total = Tally()
    for one in failed:
        total = total.add(one)
    return total
