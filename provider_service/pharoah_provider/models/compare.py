"""Cross-validation of a suspected node: its benchmark against its own past and against a peer under like load.

A single validation on shared hosts is too noisy to tell 1.2 x from nothing, so validations add up: a sequential
probability ratio test (Wald 1945), restarted at zero as in CUSUM (Page 1954), one per benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import median, stdev

EFFECT = log(1.2)
"""The slowdown worth an alert: what a sequential test separates from none."""
NOISE = 0.13
"""Standard deviation of log(own ratio / peer ratio) of healthy nodes, at least: two guests of one host, both beside a
job, differ by this much from one validation to the next."""
ALARM = log(100)
"""Evidence that confirms: a healthy node reaches it in at most one of 100 suspicions (Wald 1945)."""


@dataclass(frozen=True)
class Comparison:
    benchmark: str
    own_ratio: float
    """Node now over its own baseline under the same load; larger is slower."""
    peer_ratio: float
    """The same of the peer, at least 1: a peer that is fast today incriminates nobody. 1 when there is none to ask."""
    gain: float
    """Log likelihood ratio of `1.2 times slower than the peer` against `as fast`; negative speaks for health."""


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
    benchmark: str, own: float, own_baseline: float, baseline_error: float, peer_ratio: float = 1.0
) -> Comparison:
    """One step of the sequential test. `own` and `own_baseline` in seconds per repeat under the same load.

    `baseline_error` is the standard error of the baseline, as a ratio (0.05 = 5 %).
    """
    own_ratio, peer_ratio = own / own_baseline, max(1.0, peer_ratio)
    variance = NOISE**2 + baseline_error**2
    gain = (log(own_ratio / peer_ratio) * EFFECT - EFFECT**2 / 2) / variance
    return Comparison(benchmark, own_ratio, peer_ratio, gain)
