"""Whether a context is bad for one archetype in particular: a difference in differences of log odds ratios.

More runs make a plain association worse, not better: it detects that a context is slightly worse for everybody, and
what a confounder that nobody measured does to everybody. Both are the same for all archetypes. So the log odds ratio of
a context within one archetype is compared with that of the same context within all other archetypes; what is common to
them cancels. A hidden cause that is specific to one pair does not cancel, and only a randomised campaign shows it.

Bad pairs must not hide themselves: they are no comparison for others, and they do not widen the spread of ordinary
pairs. So what stands out is set aside before anything is estimated, and comes back where it turns out to be ordinary.
`settle` says about which pairs the rounds did not come to an end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from pharoah_learning.models.false_discovery import q_values
from pharoah_learning.models.mantel_haenszel import Array, LogOddsRatio

Flags = NDArray[np.bool_]

MIN_PAIRS = 20
"""Pairs from which their spread is estimated at least."""
MAX_FALSE_RATE = 0.05
"""The share of pairs that are called bad, and are not, on average."""
FREE_ROUNDS = 12
"""Rounds in which any pair may be set aside or come back; four or five are usual. Afterwards pairs only come back, so
that the rounds end."""
ORDINARY_DEVIATION = 2.25
"""Pairs within so many standard deviations show the spread. With less there are too few pairs for it, with more the bad
ones widen it."""
ASIDE_DEVIATION = 2.0
"""Pairs above so many standard deviations are set aside: one in 44 of the ordinary ones, which costs them little."""
MIN_ORDINARY_RATIO = 0.5
"""So many pairs are within that deviation: most are ordinary."""
SPREADS = (0.0, *np.geomspace(1e-3, 4.0, 16).tolist())
"""Spreads that are tried, from the smallest on; the one between two of them is found by bisection."""
BISECTIONS = 5
_TAIL = scipy.stats.norm.sf(ORDINARY_DEVIATION)
ORDINARY_SQUARE = 1 - 2 * ORDINARY_DEVIATION * scipy.stats.norm.pdf(ORDINARY_DEVIATION) / (1 - 2 * _TAIL)
"""The variance of a normal distribution that is cut at that deviation, as a share of the whole one."""


class Contrasts(NamedTuple):
    """One entry for each archetype (rows) and context (columns)."""

    excess: LogOddsRatio
    """How much larger the log odds ratio of the context is within the archetype than within the others."""
    excess_p: Array
    """One-sided p of no excess; 1 where it cannot be estimated."""
    p: Array
    """What is judged. By default the larger of this and of that of the association itself: both must be refuted."""
    aside: Flags
    """Pairs that stand out and are no comparison for others."""
    unsettled: Flags
    """Pairs that one round calls and the next does not: nothing should rest on them."""
    spread: float
    """How much ordinary pairs vary beyond chance, as a variance."""

    @property
    def settled(self) -> bool:
        """Whether another round calls the same pairs."""
        return not self.unsettled.any()


Excess = Callable[[Flags, float], LogOddsRatio]
"""From the pairs that are set aside and the spread of ordinary pairs to all contrasts, whose variances include it."""
Judge = Callable[[Flags, Array], Array]
"""From the pairs that are set aside and the p of the contrasts to the p that decide."""


def contrasts(own: LogOddsRatio, own_p: Array) -> Contrasts:
    """All pairs of an archetype and a context at once, from what each context does within each archetype alone.

    The others are averaged by their precision.
    """
    return settle(
        own_p.shape,
        lambda aside, spread: _excess(own, aside, spread),
        lambda _, excess_p: np.maximum(own_p, excess_p),
    )


def _excess(own: LogOddsRatio, aside: Flags, spread: float) -> LogOddsRatio:
    known = ~np.isnan(own.value) & (own.variance > 0)
    value = np.where(known, own.value, 0.0)
    weight = np.divide(1.0, own.variance + spread, out=np.zeros_like(value), where=known)
    ordinary = np.where(aside, 0.0, weight)
    weight_of_others = ordinary.sum(axis=0) - ordinary
    sum_of_others = (ordinary * value).sum(axis=0) - ordinary * value
    # A tiny weight is what rounding leaves of none.
    compared = known & (weight_of_others > 1e-9 * weight.sum(axis=0))
    precision = np.where(compared, weight_of_others, np.nan)
    return LogOddsRatio(own.value - sum_of_others / precision, own.variance + spread + 1 / precision)


def settle(shape: tuple[int, ...], excess_of: Excess, judge: Judge, least_spread: float = 0.0) -> Contrasts:
    """Set pairs aside until those that are set aside are those that stand out. `shape`: archetypes and contexts.

    At first it is the larger half in each context: bad pairs that are still compared with each other hide each other,
    while an ordinary one that is set aside comes back.
    """
    aside = _larger_half(_deviations(excess_of(np.zeros(shape, dtype=bool), least_spread)))
    rounds = 0
    while True:
        found = judge_once(excess_of, judge, aside, least_spread)
        before, now, rounds = aside, stand_out(found), rounds + 1
        aside = now & before if rounds > FREE_ROUNDS else now
        if (aside == before).all():
            break
    if (now == before).all():
        return found
    after = judge_once(excess_of, judge, now, least_spread)
    return found._replace(unsettled=find_called(found) != find_called(after))


def _larger_half(deviations: Array) -> Flags:
    """The pairs above the median of their context."""
    larger = np.zeros(deviations.shape, dtype=bool)
    for c, column in enumerate(deviations.T):
        known = column[~np.isnan(column)]
        if known.size:
            larger[:, c] = np.nan_to_num(column, nan=-np.inf) > np.median(known)
    return larger


def stand_out(found: Contrasts) -> Flags:
    """The pairs that are set aside: more of them than are called, so that what is not called does not hide others."""
    deviations = _deviations(found.excess)
    above: Flags = np.where(np.isnan(deviations), 0.0, deviations) > ASIDE_DEVIATION
    return above


def find_called(found: Contrasts) -> Flags:
    """The pairs that are bad, with a false discovery rate."""
    bad: Flags = q_values(found.p) <= MAX_FALSE_RATE
    return bad


def judge_once(excess_of: Excess, judge: Judge, aside: Flags, least_spread: float) -> Contrasts:
    """All contrasts with these pairs set aside."""
    spread = max(least_spread, smallest_spread(lambda tried: _deviations(excess_of(aside, tried))))
    excess = excess_of(aside, spread)
    deviations = _deviations(excess)
    excess_p = np.where(np.isnan(deviations), 1.0, scipy.stats.norm.sf(deviations))
    return Contrasts(excess, excess_p, judge(aside, excess_p), aside, np.zeros_like(aside), spread)


def _deviations(excess: LogOddsRatio) -> Array:
    return np.asarray(excess.value / np.sqrt(excess.variance))


def heterogeneity(excess: LogOddsRatio) -> float:
    """How much contrasts vary beyond their `variance`, as a variance of log odds ratios (see `smallest_spread`)."""
    known = ~np.isnan(excess.value) & (excess.variance > 0)
    value, variance = excess.value[known], excess.variance[known]
    return smallest_spread(lambda tried: np.asarray(value / np.sqrt(variance + tried)))


def smallest_spread(deviations_of: Callable[[float], Array]) -> float:
    """How much the contrasts of ordinary pairs vary beyond chance, as a variance of log odds ratios.

    What a hidden cause does is not exactly the same for all archetypes. With many runs such small differences would be
    found significant, so their spread counts as noise. It is the smallest one with which the contrasts that are near
    zero vary as the middle of a normal distribution does: most pairs are ordinary, and how far the others are away does
    not matter (an empirical null, Efron 2004). `deviations_of` gives the standardised contrasts with a spread; those of
    unknown ones are NaN.
    """

    def too_wide(spread: float) -> bool:
        deviations = deviations_of(spread)
        known = deviations[~np.isnan(deviations)]
        squares = known[np.abs(known) <= ORDINARY_DEVIATION] ** 2
        few = squares.size <= MIN_ORDINARY_RATIO * known.size
        return known.size >= MIN_PAIRS and (few or float(squares.mean()) > ORDINARY_SQUARE)

    wide = [True]
    for tried in SPREADS:
        wide.append(too_wide(tried))
        if not wide[-1] and not wide[-2]:
            break
    # A crossing counts where the next spread is not too wide either: by chance it may be crossed back.
    at = max(0, len(wide) - (2 if wide[-1] else 3))
    low, high = SPREADS[max(0, at - 1)], SPREADS[at]
    for _ in range(BISECTIONS if high else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if too_wide(middle) else (low, middle)
    return float(high)
