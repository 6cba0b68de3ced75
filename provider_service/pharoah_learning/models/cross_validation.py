"""Cross-validation of a suspected node: its benchmark against its own past and against a peer under like load.

A single validation on shared hosts is too noisy to tell 1.2 x from nothing, so validations add up: a sequential
probability ratio test (Wald 1945) over the newest validations, as many of them as speak loudest (as CUSUM does, Page
1954), one test per benchmark. An error of the baseline is the same in every validation and does not average out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import median, stdev

EFFECT_LOG_RATIO = log(1.2)
"""The slowdown worth an alert: what a sequential test separates from none."""
LARGEST_LOG_RATIO = log(1.5)
"""No single validation says more than this: tails are heavy."""
ALARM_LOG_ODDS = log(200)
"""Evidence that confirms: a healthy node reaches it in at most one of 100 suspicions. Wald's bound for a single test
is 1 of 200; choosing anew, with each validation, how many count costs the rest (simulated in the tests)."""


@dataclass(frozen=True)
class BenchmarkLevel:
    """What a benchmark shows on a healthy node: seconds per repeat, and the standard error of that as a ratio."""

    seconds: float
    error_ratio: float


@dataclass(frozen=True)
class Comparison:
    """One benchmark of one validation."""

    benchmark: str
    own_ratio: float
    """Node now over its own level under the same load; larger is slower."""
    peer_ratio: float
    """The same of the peer, at least 1: a peer that is fast today incriminates nobody. 1 when there is none to ask."""
    error_ratio: float
    """Standard error of the level, as a ratio (0.05 = 5 %)."""
    noise_log_sd: float
    """Standard deviation of log(own ratio / peer ratio) of healthy nodes, from one validation to the next."""

    @property
    def slowdown(self) -> float:
        """Log of how much slower than the peer the node has become, without the extremes."""
        return max(-LARGEST_LOG_RATIO, min(LARGEST_LOG_RATIO, log(self.own_ratio / self.peer_ratio)))


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
    benchmark: str, own_seconds: float, level: BenchmarkLevel, noise_log_sd: float, peer_ratio: float = 1.0
) -> Comparison:
    """One benchmark of a node, in seconds per repeat, against its level under the same load."""
    return Comparison(benchmark, own_seconds / level.seconds, max(1.0, peer_ratio), level.error_ratio, noise_log_sd)


def evidence(comparisons: Sequence[Comparison]) -> float:
    """What validations of one benchmark, oldest first, add up to: a log likelihood ratio, never below zero.

    `1.2 times slower than the peer` against `as fast`. Above ALARM the node is called slow.
    """
    strongest = total = 0.0
    for number, comparison in enumerate(reversed(comparisons), 1):
        total += comparison.slowdown
        variance = comparison.noise_log_sd**2 / number + comparison.error_ratio**2
        strongest = max(strongest, (total / number * EFFECT_LOG_RATIO - EFFECT_LOG_RATIO**2 / 2) / variance)
    return strongest


def recovered(comparisons: Sequence[Comparison]) -> bool:
    """Whether the last two validations of a benchmark put the node nearer to its peer than to 1.2 times slower."""
    newest = comparisons[-2:]
    return len(newest) == 2 and sum(c.slowdown for c in newest) / 2 < EFFECT_LOG_RATIO / 2
