"""Matched pairs: a quasi-experiment that people can follow, run by run (Krishnan and Sitaraman 2012).

Each exposed run is paired at random with one other run of the same stratum, and no run is used twice. Only pairs with
one failure count. The result of one matching depends on chance, so several are made and the median is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from pharoah_learning.models.mantel_haenszel import Array

MATCHINGS = 5
SENSITIVITY_LEVEL = 0.05


class MatchedPairs(NamedTuple):
    """The median matching of an exposure."""

    pairs: int
    unmatched: int
    """Exposed runs without another run in their stratum."""
    against: int
    """Pairs in which only the exposed run failed."""
    for_it: int
    """Pairs in which only the other run failed."""
    p: float
    """One-sided sign test: no effect against more failures of the exposed."""

    @property
    def net_outcome(self) -> float:
        """The share of pairs that the exposure has turned into failures, from -1 to 1; 0 without pairs."""
        return (self.against - self.for_it) / self.pairs if self.pairs else 0.0

    @property
    def sensitivity(self) -> float:
        """Rosenbaum's gamma (2002): a hidden cause that makes one run of a pair so many times more likely to be exposed
        could explain the result. 1 or less: chance could."""
        discordant = self.against + self.for_it
        if not self.against:
            return 0.0
        share = float(scipy.special.betaincinv(self.against, discordant - self.against + 1, SENSITIVITY_LEVEL))
        return share / (1 - share)


def match_pairs(
    exposed_runs: Array, exposed_failures: Array, other_runs: Array, other_failures: Array, rng: np.random.Generator
) -> MatchedPairs:
    """The median of several matchings, from the counts of each stratum.

    Drawing runs without replacement and pairing them at random has the same distribution as drawing the numbers of
    failures (hypergeometric) and then those of the pairs in which both fail, which takes no list of runs.
    """
    chosen = [_match(exposed_runs, exposed_failures, other_runs, other_failures, rng) for _ in range(MATCHINGS)]
    return sorted(chosen, key=lambda one: one.p)[MATCHINGS // 2]


def _match(
    exposed_runs: Array, exposed_failures: Array, other_runs: Array, other_failures: Array, rng: np.random.Generator
) -> MatchedPairs:
    a, c = exposed_failures.astype(np.int64), other_failures.astype(np.int64)
    left, right = exposed_runs.astype(np.int64), other_runs.astype(np.int64)
    pairs = np.minimum(left, right)
    failed = rng.hypergeometric(a, left - a, pairs)
    others_failed = rng.hypergeometric(c, right - c, pairs)
    both = rng.hypergeometric(failed, pairs - failed, others_failed)
    against, for_it = int((failed - both).sum()), int((others_failed - both).sum())
    p = float(scipy.special.bdtrc(against - 1, against + for_it, 0.5)) if against else 1.0
    return MatchedPairs(int(pairs.sum()), int((left - pairs).sum()), against, for_it, p)
