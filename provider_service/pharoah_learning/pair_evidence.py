"""What the runs of each archetype say about all of its contexts together, for the contrasts of pairs.

The likelihood of each archetype is taken near the effects that all archetypes share, and not near its own estimates:
with few failures its own estimates are far out, and their curvature says little. What all share comes from the
regressions of the archetypes, in a first pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from pharoah_learning.models.joint_contrasts import Evidence, common_effects
from pharoah_learning.models.logistic import likelihood_at
from pharoah_learning.models.mantel_haenszel import Array, Strata, p_values
from pharoah_learning.observations import (
    PENALTY,
    Adjusted,
    ArchetypeFit,
    Codes,
    Counts,
    Flags,
    Observations,
    design,
    levels_of,
)
from pharoah_learning.run_groups import RunGroups

FIRST_SPREAD = 0.05
"""How differently contexts act on archetypes, as a variance, while the common effects are found."""
CONSTANT_STEPS = 20
"""Steps of Newton's method for the constant of an archetype at most; four are usual."""


def pair_evidence(seen: Observations, own: Adjusted) -> Evidence:
    """The log likelihood of each archetype near the common effects."""
    levels = levels_of(seen)
    shared = common_effects(_stack(own.fits, [_near_own(fit) for fit in own.fits]), FIRST_SPREAD)
    parts = [_near_shared(group, fit, levels, shared) for group, fit in zip(seen.groups, own.fits, strict=True)]
    return _stack(own.fits, parts)


_Part = tuple[Array, Array]
"""Information and weighted effects of contexts and confounders."""


def _stack(fits: Sequence[ArchetypeFit], parts: Sequence[_Part]) -> Evidence:
    stands_for = np.array([np.unique(fit.place, return_index=True)[1][fit.place] for fit in fits])
    return Evidence(np.array([part[0] for part in parts]), np.array([part[1] for part in parts]), stands_for)


def _near_own(fit: ArchetypeFit) -> _Part:
    """Near the archetype's own estimates, where the penalty has the gradient of the likelihood, with the other sign."""
    value, covariance = fit.fitted
    information = np.linalg.inv(covariance) - 2 * PENALTY * np.eye(len(value))
    return _select_contexts(fit, information, information @ value + 2 * PENALTY * value)


def _near_shared(group: RunGroups, fit: ArchetypeFit, levels: Sequence[int], shared: Array) -> _Part:
    columns = design(group, fit.chosen, levels)
    beta = np.concatenate([_columns_of(fit, len(levels) and sum(levels)).T @ shared, [0.0]])
    beta[-1] = _constant(columns[:, :-1] @ beta[:-1], group)
    _, gradient, curvature = likelihood_at(beta, columns, group.failures, group.runs)
    return _select_contexts(fit, curvature, curvature @ beta - gradient)


def _constant(log_odds: Array, group: RunGroups) -> float:
    """The constant with which as many runs fail as did, plus half a run of each outcome."""
    constant, failures, runs = 0.0, group.failures.sum(), group.runs.sum()
    for _ in range(CONSTANT_STEPS):
        p = expit(log_odds + constant)
        expected, change = float(group.runs @ p), float(group.runs @ (p * (1 - p)))
        centre = expit(constant)
        step = (failures - expected + 0.5 - centre) / (change + centre * (1 - centre) + 1e-9)
        constant += float(np.clip(step, -2.0, 2.0))
        if abs(step) < 1e-6:
            break
    return constant if runs else 0.0


def _columns_of(fit: ArchetypeFit, others: int) -> NDArray[np.float64]:
    """Shape (contexts + levels of confounders, the same columns of the fit): what each column stands for."""
    contexts = len(fit.place)
    found = np.zeros((contexts + others, len(fit.chosen) + others))
    found[np.arange(contexts), fit.place] = fit.sign
    found[contexts:, len(fit.chosen) :] = np.eye(others)
    return found


def _select_contexts(fit: ArchetypeFit, information: Array, weighted: Array) -> _Part:
    """Without the constant, and with a row for each context."""
    share = information[:-1, -1] / max(information[-1, -1], 1e-9)
    inner = information[:-1, :-1] - np.outer(share, information[-1, :-1])
    stands_for = _columns_of(fit, len(weighted) - 1 - len(fit.chosen))
    return stands_for @ inner @ stands_for.T, stands_for @ (weighted[:-1] - share * weighted[-1])


def association_p(counts: Counts, facts: Sequence[Codes], aside: Flags) -> NDArray[Any]:
    """One-sided p that runs of a pair fail no more often than others of the archetype and stratum.

    Runs with another value of the same fact are no comparison where that value is set aside.
    """
    runs, failures = counts.exposed_runs, counts.exposed_failures
    others, others_failed = counts.runs[:, None, :] - runs, counts.failures[:, None, :] - failures
    for own in facts:
        bad = aside[:, own][:, :, None]
        for part, exposed in ((others, runs[:, own]), (others_failed, failures[:, own])):
            kept = exposed * bad
            part[:, own] -= kept.sum(axis=1, keepdims=True) - kept
    return p_values(Strata(failures, runs - failures, others_failed, others - others_failed))
