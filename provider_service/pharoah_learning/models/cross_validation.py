"""Cross-validation of a suspected node: its benchmark against its own past and against a peer under a similar load.

One validation on a shared host is too noisy to separate a slowdown of 1.2 times from none. So validations add up, in
one sequential probability ratio test per benchmark (Wald 1945) over the newest validations. How many of them count is
chosen so that the evidence is strongest, as CUSUM does (Page 1954). An error of the baseline is the same in every
validation and does not average out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import median, stdev

import scipy

EFFECT_LOG_RATIO = log(1.2)
"""The slowdown that deserves an alert; the test separates it from no slowdown (ADR 4)."""
MAX_LOG_RATIO = log(1.5)
"""Slowdowns of one validation are clipped to this, because their distribution has heavy tails."""
TRIMMED_RATIO = 0.1
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
    """The same ratio of the peer, at least 1: a peer that is fast today is no evidence. 1 without a peer."""
    error_ratio: float
    """Standard error of the level, as a ratio (0.05 = 5 %)."""
    noise_log_sd: float
    """Standard deviation of log(own ratio / peer ratio) of healthy nodes, from one validation to the next."""

    @property
    def slowdown(self) -> float:
        """Log of how much slower than the peer the node has become, without the extremes."""
        return max(-MAX_LOG_RATIO, min(MAX_LOG_RATIO, log(self.own_ratio / self.peer_ratio)))


def typical_seconds(seconds: Sequence[float]) -> float:
    """Mean without the fastest and slowest tenth: on a busy core, time slices change the time of single repeats.

    Raises ValueError for an empty sequence.
    """
    if not seconds:
        raise ValueError("no repeats")
    return float(scipy.stats.trim_mean(seconds, TRIMMED_RATIO))


def spread(rounds: Sequence[float]) -> float:
    """How much healthy rounds differ: their standard deviation over their median (0.05 = 5 %); 0 for one round."""
    return stdev(rounds) / median(rounds) if len(rounds) > 1 else 0.0


def compare(
    benchmark: str, own_seconds: float, level: BenchmarkLevel, noise_log_sd: float, peer_ratio: float = 1.0
) -> Comparison:
    """One benchmark of a node, in seconds per repeat, against its level under the same load."""
    return Comparison(benchmark, own_seconds / level.seconds, max(1.0, peer_ratio), level.error_ratio, noise_log_sd)


def evidence(comparisons: Sequence[Comparison]) -> float:
    """The evidence of the validations of one benchmark, oldest first: a log likelihood ratio, never below zero.

    It compares `1.2 times slower than the peer` with `as fast as the peer`. Above ALARM_LOG_ODDS, the node is slow.
    """
    strongest = total = 0.0
    for number, comparison in enumerate(reversed(comparisons), 1):
        total += comparison.slowdown
        variance = comparison.noise_log_sd**2 / number + comparison.error_ratio**2
        strongest = max(strongest, (total / number * EFFECT_LOG_RATIO - EFFECT_LOG_RATIO**2 / 2) / variance)
    return strongest


def has_recovered(comparisons: Sequence[Comparison]) -> bool:
    """Whether the last two validations of a benchmark put the node nearer to its peer than to 1.2 times slower."""
    newest = comparisons[-2:]
    return len(newest) == 2 and sum(c.slowdown for c in newest) / 2 < EFFECT_LOG_RATIO / 2
