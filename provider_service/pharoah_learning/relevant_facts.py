"""Which facts of nodes matter for failures, from runs that nobody has randomised.

Facts come together, follow recorded confounders, and follow causes that nobody records. So a fact has to pass a screen
and then one of two judges:

* the screen: one regression of the failures on all facts, archetypes and confounders. It leaves out archetypes that
  cannot say anything about a fact, because all of their runs ended in one way or nothing else differs between them;
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
import scipy
from numpy.typing import NDArray

from pharoah_learning.models.contrasts import MAX_FALSE_RATE, contrasts
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
    screened, q, odds = _for_all(seen, columns, owner)
    particular = _for_one(seen, columns, owner)
    return [
        FactFinding(
            fact=name,
            relevant=bool(screened[at] and q[at] <= MAX_FALSE_RATE) or bool(particular[at]),
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


def _confounders(seen: FactRuns) -> Flags:
    """The columns of all confounders, shape (runs, columns); without a column where there is none."""
    return _columns(list(seen.confounders.values()))[0] if seen.confounders else np.zeros((len(seen), 0), dtype=bool)


def _for_all(seen: FactRuns, columns: Flags, owner: NDArray[np.int64]) -> tuple[Flags, Array, Array]:
    """For each fact: whether it passes the screen, its q as the judge sees it, and its odds ratio."""
    width, confounders = columns.shape[1], _confounders(seen)
    chosen = _informative(seen, np.concatenate([columns, confounders], axis=1))
    columns, confounders, failed = columns[chosen], confounders[chosen], seen.failed[chosen]
    archetype = np.unique(seen.archetype[chosen], return_inverse=True)[1].astype(np.int64)
    constant = np.ones((len(failed), 1), dtype=bool)
    design = np.concatenate([columns, _columns([archetype])[0], confounders, constant], axis=1)
    found = fit(design, failed, np.full(design.shape[1], PENALTY))
    value, covariance = found.value[:width], found.covariance[:width, :width]
    own = own_effects(value, covariance, _residuals(columns, archetype, confounders))
    facts = len(seen.facts)
    screened = q_values(_joint_p(value, covariance, owner, facts)) <= SCREEN_FALSE_RATE
    q = q_values(_joint_p(own.value, own.covariance, owner, facts))
    odds = np.ones(facts)
    for at in range(facts):
        chosen = own.value[owner == at]
        if chosen.size:
            odds[at] = np.exp(chosen[np.abs(chosen).argmax()])
    return screened, q, odds


def _informative(seen: FactRuns, columns: Flags) -> Flags:
    """The runs of the archetypes of which some runs failed and others did not, and in which a column has two values.
    The others would only take memory: a column of the regression for each of them. Shape (runs,)."""
    runs = np.bincount(seen.archetype)
    failures = np.bincount(seen.archetype, seen.failed)
    varies = np.zeros(len(runs), dtype=bool)
    for column in columns.T:
        ones = np.bincount(seen.archetype, column)
        varies |= (ones > 0) & (ones < runs)
    chosen: Flags = ((failures > 0) & (failures < runs) & varies)[seen.archetype]
    return chosen


def _residuals(columns: Flags, archetype: Codes, confounders: Flags) -> Array:
    """What archetypes and confounders do not explain of columns, by least squares: the residuals of a regression on a
    column for each archetype and on the confounders (Frisch and Waugh 1933), without these columns."""
    x, others = _less_means(columns, archetype), _less_means(confounders, archetype)
    return x - others @ np.linalg.lstsq(others, x, rcond=None)[0] if others.size else x


def _less_means(columns: Flags, archetype: Codes) -> Array:
    """Columns less their means within each archetype."""
    runs = np.bincount(archetype)
    found = columns.astype(float)
    for at, column in enumerate(columns.T):
        found[:, at] -= (np.bincount(archetype, column) / runs)[archetype]
    return found


def _joint_p(value: Array, covariance: Array, owner: NDArray[np.int64], facts: int) -> Array:
    """Wald's test that all columns of a fact have no effect; 1 for a fact with one value."""
    p = np.ones(facts)
    for at in range(facts):
        own = np.flatnonzero(owner == at)
        if own.size:
            statistic = value[own] @ np.linalg.solve(covariance[np.ix_(own, own)], value[own])
            p[at] = scipy.stats.chi2.sf(statistic, own.size)
    return p


def _for_one(seen: FactRuns, columns: Flags, owner: NDArray[np.int64]) -> list[list[int]]:
    """For each fact: the archetypes for which it matters more, or less, than for the others."""
    values, variances = [], []
    others = np.concatenate([_confounders(seen), np.ones((len(seen), 1), dtype=bool)], axis=1)
    for number in range(len(seen.archetypes)):
        mine = seen.archetype == number
        design = np.concatenate([columns[mine], others[mine]], axis=1)
        found = fit(design, seen.failed[mine], np.full(design.shape[1], PENALTY))
        compared = _compare(seen, columns, mine, owner)
        values.append(np.where(compared, found.value[: columns.shape[1]], np.nan))
        variances.append(np.where(compared, np.diag(found.covariance)[: columns.shape[1]], np.nan))
    value, variance = np.array(values), np.array(variances)
    sides = []
    for sign in (1.0, -1.0):
        one_sided = np.where(np.isnan(value), 1.0, scipy.stats.norm.sf(sign * value / np.sqrt(variance)))
        sides.append(contrasts(LogOddsRatio(sign * value, variance), one_sided).p)
    p = np.minimum(1.0, 2 * np.minimum(*sides))
    called = q_values(p) <= MAX_FALSE_RATE
    return [[int(one) for one in np.flatnonzero(called[:, owner == at].any(axis=1))] for at in range(len(seen.facts))]


def _compare(seen: FactRuns, columns: Flags, mine: Flags, owner: NDArray[np.int64]) -> Flags:
    """Which values of facts some of these runs have, beside others with the first value: elsewhere there is nothing to
    compare, and the penalty alone would give the effect. Shape (columns,)."""
    first = np.array([bool((codes[mine] == 0).any()) for codes in seen.facts.values()], dtype=bool)
    found: Flags = columns[mine].any(axis=0) & first[owner]
    return found
