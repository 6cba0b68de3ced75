"""The association of an exposure with failures over strata: Mantel and Haenszel (1959).

A stratum is a 2 x 2 table: exposed and other runs, failed and not. Within a stratum all runs agree on the confounders,
so only strata that hold both kinds of runs and both outcomes say something.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]

EXACT_BELOW_VARIANCE = 9.0
"""The normal approximation of the test holds where the variance of the number of failures is at least 9; below, the
exact distribution is used."""


class Strata(NamedTuple):
    """Counts with the strata along the last axis; all four have the same shape."""

    exposed_failed: Array
    exposed_ok: Array
    other_failed: Array
    other_ok: Array


class LogOddsRatio(NamedTuple):
    """An estimate with its variance. Positive: the exposed fail more often. NaN where nothing can be estimated."""

    value: Array
    variance: Array


def log_odds_ratio(strata: Strata) -> LogOddsRatio:
    """The common log odds ratio with the variance of Robins, Breslow and Greenland (1986)."""
    a, b, c, d = strata
    n = a + b + c + d
    per_run = np.divide(1.0, n, out=np.zeros_like(n, dtype=float), where=n > 0)
    r, s = a * d * per_run, b * c * per_run
    p, q = (a + d) * per_run, (b + c) * per_run
    concordant, discordant = r.sum(axis=-1), s.sum(axis=-1)
    known = (concordant > 0) & (discordant > 0)
    nothing = np.full(known.shape, np.nan)
    value = np.log(np.divide(concordant, discordant, out=nothing.copy(), where=known))
    variance = sum(
        np.divide(part.sum(axis=-1), 2 * left * right, out=nothing.copy(), where=known)
        for part, left, right in (
            (p * r, concordant, concordant),
            (p * s + q * r, concordant, discordant),
            (q * s, discordant, discordant),
        )
    )
    return LogOddsRatio(value, np.asarray(variance))


def p_values(strata: Strata) -> Array:
    """One-sided p of no association against more failures among the exposed, with the margins of each stratum given.

    The number of failures among the exposed is then a sum of hypergeometric variables. Where it varies little, the p is
    exact (their convolution); else it is the normal approximation with a correction for continuity.
    """
    width: int = np.shape(strata[0])[-1]
    a, b, c, d = (np.reshape(part, (-1, width)).astype(float) for part in strata)
    n, exposed, failed = a + b + c + d, a + b, a + c
    expected = np.divide(exposed * failed, n, out=np.zeros_like(n, dtype=float), where=n > 0)
    spread = np.divide(
        exposed * (n - exposed) * failed * (n - failed), n * n * (n - 1), out=np.zeros_like(expected), where=n > 1
    )
    excess, variance = (a - expected).sum(axis=-1), spread.sum(axis=-1)
    deviation = np.divide(excess - 0.5, np.sqrt(variance), out=np.full(variance.shape, -np.inf), where=variance > 0)
    found = np.where(variance > 0, scipy.stats.norm.sf(deviation), 1.0)
    for row in np.flatnonzero((variance > 0) & (variance < EXACT_BELOW_VARIANCE)):
        used = spread[row] > 0
        found[row] = _exact(a[row][used], n[row][used], exposed[row][used], failed[row][used])
    shape: tuple[int, ...] = np.shape(strata[0])[:-1]
    return found.reshape(shape)


def _exact(a: Array, n: Array, exposed: Array, failed: Array) -> float:
    """P(sum of hypergeometric variables >= observed sum)."""
    least, distribution = 0, np.ones(1)
    for total, marked, drawn in zip(n.astype(int), exposed.astype(int), failed.astype(int), strict=True):
        low, high = max(0, drawn + marked - total), min(drawn, marked)
        distribution = np.convolve(
            distribution, scipy.stats.hypergeom.pmf(np.arange(low, high + 1), total, marked, drawn)
        )
        least += low
    tail: Any = distribution[max(0, int(a.sum()) - least) :].sum()
    return float(min(1.0, tail))
