"""Whether a difference is shown to be small: the test of equivalence for matched pairs.

To find no difference is not to show that there is none. So two one-sided tests must refute that the failure rates of
the two sides differ by more than a margin, in either direction (Schuirmann 1987). For pairs of runs each is the score
test of Tango (1998), which also holds where no pair disagrees.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

LEVEL = 0.05
"""The probability that a difference as large as the margin is called small, at most."""


class PairedCounts(NamedTuple):
    """Pairs of runs, one of each side, that agree in everything else."""

    pairs: int
    left: int
    """Pairs in which only the run of the left side failed."""
    right: int


def largest_difference(counts: PairedCounts) -> float:
    """The absolute difference of failure rates that the pairs do not refute, at most; 1 without pairs.

    Each of the two bounds holds with 1 - LEVEL.
    """
    if not counts.pairs:
        return 1.0
    return max(_upper(counts), _upper(PairedCounts(counts.pairs, counts.right, counts.left)))


def _upper(counts: PairedCounts) -> float:
    """The upper bound of the failure rate of the left side minus that of the right side."""
    z = scipy.stats.norm.isf(LEVEL)
    estimate = (counts.left - counts.right) / counts.pairs
    if estimate >= 1 - 1e-9 or _score(counts, 1 - 1e-9) > -z:
        return 1.0
    return float(scipy.optimize.brentq(lambda difference: _score(counts, difference) + z, estimate, 1 - 1e-9))


def _score(counts: PairedCounts, difference: float) -> float:
    """How many standard errors the observed difference lies above `difference`, if that is the true one."""
    n, b, c = counts
    linear = -b - c + (2 * n - b + c) * difference
    constant = -c * difference * (1 - difference)
    only_right = (np.sqrt(max(0.0, linear**2 - 8 * n * constant)) - linear) / (4 * n)
    variance = n * (2 * only_right + difference * (1 - difference))
    return float((b - c - n * difference) / np.sqrt(variance)) if variance > 0 else 0.0
