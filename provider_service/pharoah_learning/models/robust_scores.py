"""Scores that a few bad values do not move: robust z, what to leave out of a reference, and conformal p-values.

Larger is worse in all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.mantel_haenszel import Array

_DEVIATION_TO_SD = 1 / 0.6744897501960817
"""The median absolute deviation of a normal distribution over its standard deviation: its 75 % quantile."""
_UPPER = 0.9
_UPPER_TO_SD = 1 / 1.2815515655446004
"""The same for the 90 % quantile. Both are numbers here, because scipy.stats takes a second to load."""
CUT = 3.5
"""Robust standard deviations above the median beyond which a member does not belong to the core of a reference
(Iglewicz and Hoaglin 1993), where values are near normal, such as means: one of 4,000 good ones lies there."""
SKEWED_CUT = 6.0
"""The same where values are skewed to the worse side, such as slow quantiles."""
LOST = 0.5
"""So many good members are left out of a reference, as is expected. The largest scores of a reference decide on false
alarms, so p-values count this half member as one that had a large score."""
MAX_SKEW = 5.0
"""The upper scale counts up to five times the other one; beyond that, the upper tenth are members of another kind."""
_ROUNDS = 20
TAIL_SHARE = 0.1
MIN_TAIL = 10
"""Scores of a reference that its tail is estimated from: a tenth, and at least 10."""


class Spread(NamedTuple):
    """The middle and the scale of columns, each of shape (columns,)."""

    middle: Array
    scale: Array


def measure_spread(values: Array, least: float) -> Spread:
    """Median and robust standard deviation of each column of `values`, shape (members, columns), without its NaN.

    The scale is the larger one of two: the median absolute deviation, and the distance from the median to the upper
    tenth, which also counts when the distribution is skewed to the worse side. It is at least `least`, so that columns
    that are constant can be compared; a column without values has the middle 0 and the least scale.
    """
    middle, scale = np.zeros(values.shape[1]), np.full(values.shape[1], least)
    known = ~np.isnan(values).all(axis=0)
    seen = values[:, known]
    middle[known] = np.nanmedian(seen, axis=0)
    deviation = _DEVIATION_TO_SD * np.nanmedian(np.abs(seen - middle[known]), axis=0)
    upper = _UPPER_TO_SD * (np.nanquantile(seen, _UPPER, axis=0) - middle[known])
    upper = np.where(deviation > least, np.minimum(upper, MAX_SKEW * deviation), upper)
    scale[known] = np.maximum(np.maximum(deviation, upper), least)
    return Spread(middle, scale)


def worst_z(values: Array, spread: Spread) -> Array:
    """The largest robust z over the columns, one for each member."""
    worst: Array = z_scores(values, spread).max(axis=-1)
    return worst


def z_scores(values: Array, spread: Spread) -> Array:
    """Robust z in the shape of `values`: how many scales a value is above the middle of its column."""
    scores: Array = (values - spread.middle) / spread.scale
    return scores


def core_members(values: Array, cuts: Array, least: float) -> NDArray[np.bool_]:
    """The core of a reference: the members whose robust z is at most the cut of the column, in all columns.

    `values`: shape (members, columns), NaN where a member has no value. `cuts`: shape (columns,). Middle and scale are
    estimated again from the core until nothing changes, because bad members make the scale larger and hide each other.
    """
    core: NDArray[np.bool_] = np.ones(len(values), dtype=bool)
    for _ in range(_ROUNDS):
        spread = measure_spread(values[core], least)
        now: NDArray[np.bool_] = ~np.any(z_scores(values, spread) > cuts, axis=1)
        if (now == core).all():
            break
        core = now
    return core


def good_members(scores: Array, core: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The core, and the members beyond it that are no surprise: so many as large scores are expected of good members.

    A score is a surprise when fewer than `LOST` members of a good reference are expected to have one as large. Without
    this step a reference whose good members have a heavy tail would lose them.
    """
    ordered = np.sort(scores[core])
    expected = np.array([(len(ordered) + 1) * _tail_p(ordered, score) for score in scores])
    return core | (expected >= LOST)


def conformal_p(scores: Array, score: float) -> float:
    """The probability that a new member of the population of `scores` has a score of `score` or more.

    `scores`: those of the good members of a reference, in rising order. The p-value is that of conformal prediction
    (Vovk, Gammerman and Shafer 2005), (1 + number of scores that are at least as large) over (1 + number of scores),
    with `LOST` more of them in both. It holds for every distribution, and for ties, up to what is lost. Beyond the
    largest score it is extrapolated (`_tail_p`), which serves corrections for several tests only.
    """
    count = len(scores)
    at_least = count - int(np.searchsorted(scores, score, side="left"))
    p = (1 + LOST + at_least) / (1 + LOST + count)
    return p if at_least else min(p, (1 + LOST) * _tail_p(scores, score))


def _tail_p(scores: Array, score: float) -> float:
    """The probability of a score of `score` or more, beyond the largest one by an exponential tail.

    With k excesses of the sum S over a score, a new excess is larger than x with a probability of (1 + x / S)^-k, which
    includes the error of the estimated mean. A tail that is heavier than exponential makes this too small.
    """
    count = len(scores)
    at_least = count - int(np.searchsorted(scores, score, side="left"))
    p = (1 + at_least) / (1 + count)
    tail = max(MIN_TAIL, int(TAIL_SHARE * count))
    if at_least or tail >= count:
        return p
    begin = scores[count - tail - 1]
    total = float((scores[count - tail :] - begin).sum())
    if total <= 0:
        return p
    return min(p, (tail + 1) / (count + 1) * float((1 + (score - begin) / total) ** -tail))


def least_members(level: float) -> int:
    """How many members a reference needs so that a p-value can be as small as `level` without a tail: 149 for 0.01.

    Raises ValueError for a level that is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number between 0 and 1, not {level}")
    return int(np.ceil((1 + LOST) * (1 / level - 1) - 1e-9)) if level < 0.5 else 1
