"""Simpler ways to find the facts that matter, on the same runs: each gives the names of the facts that it chooses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy
from scipy.stats import norm

from pharoah_learning.models.false_discovery import q_values
from pharoah_learning.models.logistic import fit
from pharoah_learning.observations import PENALTY
from pharoah_learning.relevant_facts import SCREEN_FALSE_RATE, FactRuns

Array = NDArray[np.float64]

SUBSAMPLES = 50
STABLE_RATIO = 0.8
"""A fact is stable that is chosen in so many of the subsamples (Meinshausen and Buehlmann 2010)."""
FALSE_CHOICES = 4.0
"""Facts that stability selection chooses by chance at most, on average; it fixes how many a subsample may choose."""


def wald_bh(seen: FactRuns) -> set[str]:
    """One logistic regression of all runs on facts, archetypes and confounders; tests of Wald with a false discovery
    rate of 10 %."""
    design, facts = _design(seen)
    found = fit(design, seen.failed, np.full(design.shape[1], PENALTY))
    z = found.value[:facts] / np.sqrt(np.diag(found.covariance)[:facts])
    return _chosen(seen, q_values(2 * norm.sf(np.abs(z))) <= SCREEN_FALSE_RATE)


def stability_selection(seen: FactRuns) -> set[str]:
    """Logistic regression with an L1 penalty on the facts, in random halves of the runs, with all runs and within each
    archetype: the facts that most halves choose."""
    stable = _stable(seen, np.ones(len(seen), dtype=bool))
    for number in range(len(seen.archetypes)):
        stable |= _stable(seen, seen.archetype == number)
    return _chosen(seen, stable)


def pooled_stability_selection(seen: FactRuns) -> set[str]:
    """The same with all runs alone."""
    return _chosen(seen, _stable(seen, np.ones(len(seen), dtype=bool)))


def mutual_information(seen: FactRuns, count: int) -> set[str]:
    """The facts with the most information about failures; how many are causes is known to it."""
    joint = np.array(
        [
            [[np.mean((codes == value) & (seen.failed == failed)) for failed in (False, True)] for value in (0, 1)]
            for codes in seen.facts.values()
        ]
    )
    apart = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    information = (xlogy(joint, joint) - xlogy(joint, apart)).sum(axis=(1, 2))
    return _chosen(seen, information >= np.sort(information)[-count])


FACT_METHODS: dict[str, Callable[[FactRuns], set[str]]] = {
    "wald_bh": wald_bh,
    "stability_selection": stability_selection,
    "stability_selection_pooled": pooled_stability_selection,
}


def _stable(seen: FactRuns, runs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The facts that most halves of these runs choose first. Halves come in pairs that share no run (Shah and Samworth
    2013).

    A path of L1 penalties is that of a weighted regression, where the log likelihood is replaced by its square form at
    the fit of all else (Wang and Leng 2007).
    """
    design, facts = _design(seen)
    design, failed = design[runs], seen.failed[runs]
    others = design[:, facts:]
    p = expit(others @ fit(others, failed, np.full(others.shape[1], PENALTY)).value)
    scaled, left = design * np.sqrt(p * (1 - p))[:, None], failed - p
    curvature, slope = scaled.T @ scaled, design.T @ left
    most = int(np.sqrt((2 * STABLE_RATIO - 1) * facts * FALSE_CHOICES))
    rng, counts = np.random.default_rng(0), np.zeros(facts)
    for _ in range(SUBSAMPLES // 2):
        half = rng.permutation(len(failed))[: len(failed) // 2]
        own = scaled[half].T @ scaled[half], design[half].T @ left[half]
        for part in (own, (curvature - own[0], slope - own[1])):
            counts[_first_on_path(*_of_facts(*part, facts), most)] += 1
    return np.asarray(counts >= STABLE_RATIO * SUBSAMPLES)


def _of_facts(curvature: Array, slope: Array, facts: int) -> tuple[Array, Array]:
    """Curvature and slope in the coefficients of the facts, when those of all else follow."""
    curvature = curvature + 1e-6 * np.eye(len(curvature))
    follow = np.linalg.solve(curvature[facts:, facts:], curvature[facts:, :facts])
    return (
        curvature[:facts, :facts] - curvature[:facts, facts:] @ follow,
        slope[:facts] - follow.T @ slope[facts:],
    )


def _first_on_path(gram: Array, slope: Array, most: int) -> NDArray[np.intp]:
    """The columns that an L1 penalty lets in first, as it becomes smaller (Efron and others 2004)."""
    scale = np.sqrt(np.diag(gram))
    gram, slope = gram / np.outer(scale, scale), slope / scale
    active = [int(np.abs(slope).argmax())]
    while len(active) < most:
        penalty = np.abs(slope[active]).max()
        chosen = np.array(active)
        direction = np.linalg.solve(gram[np.ix_(chosen, chosen)], np.sign(slope[chosen]))
        change = gram[:, chosen] @ direction
        steps = np.full(len(slope), np.inf)
        for sign in (1.0, -1.0):
            gap, closing = penalty - sign * slope, 1 - sign * change
            step = np.divide(gap, closing, out=np.full(len(slope), np.inf), where=closing > 1e-12)
            steps = np.minimum(steps, np.where(step > 1e-12, step, np.inf))
        steps[chosen] = np.inf
        joining = int(steps.argmin())
        slope = slope - steps[joining] * change
        active.append(joining)
    return np.array(active)


def _design(seen: FactRuns) -> tuple[Array, int]:
    """The facts (which have two values here), then archetypes, confounders and a constant; how many facts there are."""
    others = [codes[:, None] == np.arange(1, int(codes.max()) + 1) for codes in seen.confounders.values()]
    archetypes = seen.archetype[:, None] == np.arange(1, len(seen.archetypes))
    facts = np.column_stack(list(seen.facts.values()))
    return np.concatenate([facts, archetypes, *others, np.ones((len(seen), 1))], axis=1).astype(float), facts.shape[1]


def _chosen(seen: FactRuns, mask: NDArray[np.bool_]) -> set[str]:
    return {name for name, chosen in zip(seen.facts, mask, strict=True) if chosen}
