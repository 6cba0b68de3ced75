"""Simpler ways to find incompatible pairs, on the same runs: each gives a mask of the pairs that it calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact, norm

from pharoah_learning.incompatibility import BLOCK_CONTROLS, BLOCK_FAILURES
from pharoah_learning.models.contrasts import MAX_FALSE_RATE
from pharoah_learning.models.false_discovery import q_values
from pharoah_learning.models.logistic import fit
from pharoah_learning.models.mantel_haenszel import p_values
from pharoah_learning.models.matched_pairs import match_pairs
from pharoah_learning.observations import Observations, stratify

Mask = NDArray[np.bool_]
RIDGE = 1.0
"""Penalty on the square of each coefficient of an interaction; main effects have a hundredth of it."""


def fisher(seen: Observations) -> Mask:
    """A pair against all other runs, whatever they are: Fisher's exact test."""
    counts = stratify(seen).counts
    runs, failures = counts.exposed_runs.sum(axis=-1), counts.exposed_failures.sum(axis=-1)
    rest, rest_failures = len(seen) - runs, seen.failed.sum() - failures
    p = [
        fisher_exact([[a, n - a], [c, m - c]], alternative="greater").pvalue
        for a, n, c, m in zip(failures.flat, runs.flat, rest_failures.flat, rest.flat, strict=True)
    ]
    return _called(np.reshape(p, runs.shape))


def sign_of_matched_pairs(seen: Observations) -> Mask:
    """The sign test on matched pairs of exact strata, alone."""
    counts, rng = stratify(seen).counts, np.random.default_rng(0)
    others, others_failed = (
        counts.runs[:, None] - counts.exposed_runs,
        counts.failures[:, None] - counts.exposed_failures,
    )
    p = [
        [
            match_pairs(
                counts.exposed_runs[a, c], counts.exposed_failures[a, c], others[a, c], others_failed[a, c], rng
            ).p
            for c in range(others.shape[1])
        ]
        for a in range(others.shape[0])
    ]
    return _called(np.array(p))


def mantel_haenszel(seen: Observations) -> Mask:
    """The test of Mantel and Haenszel within each archetype, without the contrast to other archetypes."""
    return _called(p_values(stratify(seen).counts.strata))


def ridge_logit(seen: Observations) -> Mask:
    """One logistic regression of all runs on archetypes, contexts, their interactions and the confounders."""
    archetypes = np.eye(len(seen.archetypes))[seen.archetype]
    pairs = (archetypes[:, :, None] * seen.in_context[:, None, :]).reshape(len(seen), -1)
    confounders = [np.eye(int(codes.max()) + 1)[codes][:, 1:] for codes in seen.confounders.values()]
    x = np.concatenate([archetypes, seen.in_context.astype(float), *confounders, pairs], axis=1)
    penalty = np.full(x.shape[1], RIDGE)
    penalty[: -pairs.shape[1]] = RIDGE / 100
    value, covariance = fit(x, seen.failed, penalty / 2)
    # An interaction is how much more a context does to one archetype than to all of them on average.
    own = np.eye(len(seen.archetypes)) - 1 / len(seen.archetypes)
    contrast = np.kron(own, np.eye(len(seen.contexts)))
    inner = slice(x.shape[1] - pairs.shape[1], None)
    variance = np.einsum("ij,jk,ik->i", contrast, covariance[inner, inner], contrast)
    z = contrast @ value[inner] / np.sqrt(variance)
    return _called(norm.sf(z).reshape(len(seen.archetypes), len(seen.contexts)))


def five_of_five(seen: Observations) -> Mask:
    """The rule of campaign tables: every run of the pair failed, and enough runs elsewhere did not."""
    counts = stratify(seen).counts
    runs, failures = counts.exposed_runs.sum(axis=-1), counts.exposed_failures.sum(axis=-1)
    others = counts.runs.sum(axis=-1, keepdims=True) - runs
    others_failed = counts.failures.sum(axis=-1, keepdims=True) - failures
    found: Mask = (failures == runs) & (runs >= BLOCK_FAILURES) & (others >= BLOCK_CONTROLS) & (others_failed == 0)
    return found


SIMPLER: dict[str, Callable[[Observations], Mask]] = {
    "naive_fisher": fisher,
    "qed_sign": sign_of_matched_pairs,
    "mantel_haenszel": mantel_haenszel,
    "ridge_logit": ridge_logit,
    "five_of_five": five_of_five,
}


def _called(p: NDArray[np.float64]) -> Mask:
    found: Mask = q_values(p) <= MAX_FALSE_RATE
    return found
