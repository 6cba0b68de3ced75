"""Contrasts of contexts that exclude or accompany each other: all effects of an archetype are judged together.

The values of one fact, such as drivers, exclude each other, so a bad one makes the others look good, and each of them
is only known against the others. The estimates of contexts that come together depend on each other, too. So each
archetype brings the curvature of its likelihood with all of its contexts, and not one variance for each. Its effects
are those of all archetypes, plus a small difference of its own for each context (a random effect); a pair that is set
aside has a difference of any size. A pair is judged by the one difference that it would need beside those: a value is
compared with the other values of its fact that are not set aside, in proportion to what is known of them.

This is the second stage of a hierarchical model (Laird and Ware 1982) with normal approximations of the likelihoods.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.contrasts import Contrasts, Flags, Judge, judge_once, settle
from pharoah_learning.models.mantel_haenszel import Array, LogOddsRatio

Codes = NDArray[np.integer[Any]]

CONFOUNDER_VARIANCE = 0.05
"""How differently a confounder acts on archetypes, as a variance of log odds: by a factor of 1.25 either way. Where an
archetype has enough runs, they say it better and this does not matter."""
MIN_SPREAD = 0.01
"""How much ordinary pairs differ at least, as a variance of log odds: by a tenth. No two programs are hit in exactly
the same way, and a few pairs cannot show how much (`python -m evaluation learning --part rollout_pairs`)."""
COMMON_PRECISION = 1.0
"""What is assumed of effects that are common to all archetypes: few contexts multiply the odds of everybody by more
than 7, two standard deviations. It matters only where the other archetypes hardly fail at all."""
_SINGULAR = 1e-9
"""Information that rounding leaves of none, in reciprocals of variances."""


class Evidence(NamedTuple):
    """What the runs of each archetype say, as a quadratic log likelihood of the effects of contexts and confounders."""

    information: Array
    """Shape (archetypes, columns, columns). The first columns are contexts, the others levels of confounders."""
    weighted: Array
    """Shape (archetypes, columns): the information times the most likely effects."""
    stands_for: Codes
    """Shape (archetypes, contexts): the first context of those that cannot be separated from each within it."""


def joint_contrasts(evidence: Evidence, judge: Judge) -> Contrasts:
    """All pairs of an archetype and a context at once."""
    shape = evidence.stands_for.shape
    return settle(shape, lambda aside, spread: excess(evidence, aside, spread), judge, MIN_SPREAD)


def joint_contrasts_once(evidence: Evidence, judge: Judge, aside: Flags) -> Contrasts:
    """The same in one round with these pairs set aside."""
    return judge_once(lambda some, spread: excess(evidence, some, spread), judge, aside, MIN_SPREAD)


def common_effects(evidence: Evidence, spread: float) -> Array:
    """Shape (columns,): the effects that all archetypes share, if no pair stands out."""
    total = _combine_common(evidence, np.zeros(evidence.stands_for.shape, dtype=bool), spread)
    precision = total.information.sum(axis=0) + COMMON_PRECISION * np.eye(evidence.weighted.shape[1])
    return np.asarray(np.linalg.solve(precision, total.weighted.sum(axis=0)))


def _differences(evidence: Evidence, spread: float) -> Array:
    """Shape (columns,): the variance of the archetypes' own differences."""
    contexts, columns = evidence.stands_for.shape[1], evidence.weighted.shape[1]
    return np.concatenate([np.full(contexts, spread), np.full(columns - contexts, CONFOUNDER_VARIANCE)])


def _varies(evidence: Evidence) -> Flags:
    """Which contexts an archetype says anything about."""
    found: Flags = np.einsum("acc->ac", evidence.information)[:, : evidence.stands_for.shape[1]] > _SINGULAR
    return found


def _combine_common(evidence: Evidence, aside: Flags, spread: float) -> Evidence:
    """What each archetype says about the effects that all share, without its pairs that are set aside."""
    information, weighted, stands_for = evidence
    scaled = np.eye(weighted.shape[1]) + information * _differences(evidence, spread)
    solved = np.linalg.solve(scaled, np.concatenate([information, weighted[:, :, None]], axis=2))
    information, weighted = solved[:, :, :-1], solved[:, :, -1]
    for a in np.flatnonzero(aside.any(axis=1)):
        free = np.unique(stands_for[a][aside[a]])
        share = information[a][:, free] @ np.linalg.pinv(information[a][np.ix_(free, free)], rcond=_SINGULAR)
        weighted[a] -= share @ weighted[a][free]
        information[a] -= share @ information[a][free]
    return Evidence(information, weighted, stands_for)


def excess(evidence: Evidence, aside: Flags, spread: float) -> LogOddsRatio:
    """Each pair's own difference, with those of the pairs of its archetype that are set aside unknown."""
    contexts, columns = evidence.stands_for.shape[1], evidence.weighted.shape[1]
    own = _combine_common(evidence, aside, spread)
    known_of_others = own.information.sum(axis=0) - own.information + COMMON_PRECISION * np.eye(columns)
    uncertain = np.linalg.inv(known_of_others)
    expected = np.einsum("aij,aj->ai", uncertain, own.weighted.sum(axis=0) - own.weighted)
    uncertain[:, np.arange(columns), np.arange(columns)] += _differences(evidence, spread)
    scaled = np.eye(columns) + evidence.information @ uncertain
    surprise = evidence.weighted - np.einsum("aij,aj->ai", evidence.information, expected)
    solved = np.linalg.solve(scaled, np.concatenate([evidence.information, surprise[:, :, None]], axis=2))
    information, score = solved[:, :contexts, :contexts], solved[:, :contexts, -1].copy()
    precision = np.einsum("acc->ac", information).copy()
    for a in np.flatnonzero(aside.any(axis=1)):
        stands_for = evidence.stands_for[a]
        free = np.unique(stands_for[aside[a]])
        for one in [None, *free.tolist()]:
            # Pairs that are not set aside beside all that are, and each of these beside the rest of them.
            judged = np.flatnonzero(~np.isin(stands_for, free) if one is None else stands_for == one)
            others = free[free != one]
            share = information[a][np.ix_(judged, others)] @ np.linalg.pinv(
                information[a][np.ix_(others, others)], rcond=_SINGULAR
            )
            score[a, judged] -= share @ solved[a, others, -1]
            precision[a, judged] -= (share * information[a][np.ix_(judged, others)]).sum(axis=1)
    of_others = np.einsum("acc->ac", known_of_others)[:, :contexts] - COMMON_PRECISION
    known = (precision > _SINGULAR) & (of_others > _SINGULAR) & _varies(evidence)
    nothing = np.full(precision.shape, np.nan)
    return LogOddsRatio(
        np.divide(score, precision, out=nothing.copy(), where=known),
        np.divide(1.0, precision, out=nothing.copy(), where=known),
    )
