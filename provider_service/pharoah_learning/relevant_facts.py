"""Which facts of nodes matter for failures, from runs that nobody has randomised.

Facts come together, follow recorded confounders, and follow causes that nobody records. So a fact has to pass a screen
and then one of two judges:

* the screen: one regression of the failures on all facts, archetypes and confounders;
* the judge of facts that matter for every archetype: the coefficient without what hidden causes behind several facts
  add to it (`models.hidden_factors`);
* the judge of facts that matter for one archetype: the difference between the effect within the archetype and within
  the others (`models.contrasts`); what a hidden cause does to all of them cancels.

A hidden cause behind a single fact looks like that fact in every table. This is a pure function of what is handed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from pharoah_learning.models.contrasts import LARGEST_FALSE_RATE, contrasts
from pharoah_learning.models.false_discovery import q_values
from pharoah_learning.models.hidden_factors import own_effects
from pharoah_learning.models.logistic import fit
from pharoah_learning.models.mantel_haenszel import Array, LogOddsRatio
from pharoah_learning.observations import PENALTY, Codes, Flags

SCREEN_FALSE_RATE = 0.10
"""So many of the facts that pass the screen may be there by chance."""


@dataclass(frozen=True)
class FactRuns:
    """Runs of archetypes on nodes with facts."""

    archetypes: tuple[str, ...]
    archetype: Codes
    """Shape (runs,): index into `archetypes`."""
    facts: Mapping[str, Codes]
    """Name of a fact to codes of its values from 0 on, shape (runs,)."""
    confounders: Mapping[str, Codes]
    """What is known besides the facts and may explain failures, in the same form."""
    failed: Flags
    """Shape (runs,). Failures that are the user's own are not failures here."""

    def __len__(self) -> int:
        return len(self.failed)


@dataclass(frozen=True, kw_only=True)
class FactFinding:
    """What the runs say about one fact."""

    fact: str
    relevant: bool
    q: float
    """The false discovery rate at which it is relevant for all archetypes."""
    odds_ratio: float
    """The odds ratio of the value that differs most from the first one, without what hidden causes add."""
    archetypes: tuple[str, ...]
    """Archetypes for which it matters in particular."""


def find_relevant_facts(seen: FactRuns) -> list[FactFinding]:
    """One finding for each fact, in the order of the facts."""
    columns, owner = _columns(list(seen.facts.values()))
    others, _ = _columns([seen.archetype, *seen.confounders.values()])
    screened, q, odds = _for_all(seen, columns, owner, others)
    particular = _for_one(seen, columns, owner)
    return [
        FactFinding(
            fact=name,
            relevant=bool(screened[at] and q[at] <= LARGEST_FALSE_RATE) or bool(particular[at]),
            q=float(q[at]),
            odds_ratio=float(odds[at]),
            archetypes=tuple(seen.archetypes[one] for one in particular[at]),
        )
        for at, name in enumerate(seen.facts)
    ]


def _columns(codes: list[Codes]) -> tuple[Flags, NDArray[np.int64]]:
    """A column for each value of each variable but its first one, and the number of the variable of each column."""
    parts = [column[:, None] == np.arange(1, int(column.max(initial=0)) + 1) for column in codes]
    runs = len(codes[0]) if codes else 0
    owner = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
    return np.concatenate([*parts, np.zeros((runs, 0), dtype=bool)], axis=1), owner


def _for_all(seen: FactRuns, columns: Flags, owner: NDArray[np.int64], others: Flags) -> tuple[Flags, Array, Array]:
    """For each fact: whether it passes the screen, its q as the judge sees it, and its odds ratio."""
    width = columns.shape[1]
    base = np.concatenate([others, np.ones((len(seen), 1), dtype=bool)], axis=1).astype(float)
    design = np.concatenate([columns, base], axis=1)
    found = fit(design, seen.failed, np.full(design.shape[1], PENALTY))
    value, covariance = found.value[:width], found.covariance[:width, :width]
    x = columns.astype(float)
    residuals = x - base @ np.linalg.lstsq(base, x, rcond=None)[0]
    own = own_effects(value, covariance, residuals)
    facts = len(seen.facts)
    screened = q_values(_joint_p(value, covariance, owner, facts)) <= SCREEN_FALSE_RATE
    q = q_values(_joint_p(own.value, own.covariance, owner, facts))
    odds = np.ones(facts)
    for at in range(facts):
        chosen = own.value[owner == at]
        if chosen.size:
            odds[at] = np.exp(chosen[np.abs(chosen).argmax()])
    return screened, q, odds


def _joint_p(value: Array, covariance: Array, owner: NDArray[np.int64], facts: int) -> Array:
    """Wald's test that all columns of a fact have no effect; 1 for a fact with one value."""
    p = np.ones(facts)
    for at in range(facts):
        own = np.flatnonzero(owner == at)
        if own.size:
            statistic = value[own] @ np.linalg.solve(covariance[np.ix_(own, own)], value[own])
            p[at] = chi2.sf(statistic, own.size)
    return p


def _for_one(seen: FactRuns, columns: Flags, owner: NDArray[np.int64]) -> list[list[int]]:
    """For each fact: the archetypes for which it matters more, or less, than for the others."""
    values, variances = [], []
    confounders, _ = _columns(list(seen.confounders.values()))
    others = (
        np.concatenate([confounders, np.ones((len(seen), 1), dtype=bool)], axis=1)
        if seen.confounders
        else (np.ones((len(seen), 1), dtype=bool))
    )
    for number in range(len(seen.archetypes)):
        mine = seen.archetype == number
        design = np.concatenate([columns[mine], others[mine]], axis=1)
        found = fit(design, seen.failed[mine], np.full(design.shape[1], PENALTY))
        compared = _compared(seen, columns, mine, owner)
        values.append(np.where(compared, found.value[: columns.shape[1]], np.nan))
        variances.append(np.where(compared, np.diag(found.covariance)[: columns.shape[1]], np.nan))
    value, variance = np.array(values), np.array(variances)
    sides = []
    for sign in (1.0, -1.0):
        one_sided = np.where(np.isnan(value), 1.0, norm.sf(sign * value / np.sqrt(variance)))
        sides.append(contrasts(LogOddsRatio(sign * value, variance), one_sided).p)
    p = np.minimum(1.0, 2 * np.minimum(*sides))
    called = q_values(p) <= LARGEST_FALSE_RATE
    return [[int(one) for one in np.flatnonzero(called[:, owner == at].any(axis=1))] for at in range(len(seen.facts))]


def _compared(seen: FactRuns, columns: Flags, mine: Flags, owner: NDArray[np.int64]) -> Flags:
    """Which values of facts some of these runs have, beside others with the first value: elsewhere there is nothing to
    compare, and the penalty alone would give the effect. Shape (columns,)."""
    first = np.array([bool((codes[mine] == 0).any()) for codes in seen.facts.values()], dtype=bool)
    found: Flags = columns[mine].any(axis=0) & first[owner]
    return found
