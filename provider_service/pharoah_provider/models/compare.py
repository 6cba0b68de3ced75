"""Cross-validation of a suspected node: its benchmark against its own past and against a peer under like load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, stdev

LEAST_EFFECT = 1.10
"""Below 10 % a difference is not called, whatever the statistics say."""
SPREADS = 2.5
"""Standard deviations of healthy rounds that a round must leave behind to count as slow."""


@dataclass(frozen=True)
class Comparison:
    benchmark: str
    own_ratio: float
    """Node now over its own baseline under the same load; larger is slower."""
    peer_ratio: float
    """The same of the peer; 1 when there is none to ask."""
    limit: float

    @property
    def slow(self) -> bool:
        return self.own_ratio > self.limit and self.own_ratio > LEAST_EFFECT * self.peer_ratio


def typical_seconds(seconds: Sequence[float]) -> float:
    """Mean without the fastest and slowest tenth: time slices make single repeats of a busy core jump.

    Raises ValueError for an empty sequence.
    """
    if not seconds:
        raise ValueError("no repeats")
    cut = len(seconds) // 10
    kept = sorted(seconds)[cut : len(seconds) - cut]
    return sum(kept) / len(kept)


def spread(rounds: Sequence[float]) -> float:
    """How much healthy rounds differ: their standard deviation over their median (0.05 = 5 %); 0 for a single round."""
    return stdev(rounds) / median(rounds) if len(rounds) > 1 else 0.0


def compare(
    benchmark: str, own: float, own_baseline: float, spread_ratio: float, peer_ratio: float = 1.0
) -> Comparison:
    """`own` and `own_baseline` in seconds per repeat under the same load."""
    limit = max(LEAST_EFFECT, 1 + SPREADS * spread_ratio)
    return Comparison(benchmark, own / own_baseline, max(1.0, peer_ratio), limit)
