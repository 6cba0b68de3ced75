"""Production runs as learning counts them: columns of codes, one entry for each run.

Runs say more together than one by one, so they are columns (numpy) and not objects: ten million of them take a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.logistic import fit
from pharoah_learning.models.mantel_haenszel import LogOddsRatio, Strata

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]

LARGEST_UNBINNED = 24
"""A numeric confounder with more different values is put into bins of equal numbers of runs."""
BINS = 5
LEAST_MATCHED_RATIO = 0.8
"""Strata are made coarser until so many of the exposed runs have another run in their stratum."""

PENALTY = 0.05
"""Ridge penalty of the adjustment. It is worth a twentieth of a run, and keeps what never fails finite."""

INSEPARABLE_RATIO = 0.95
"""Two contexts are inseparable where they agree in so many of the runs in either, and of those outside either."""


@dataclass(frozen=True)
class Observations:
    """Runs of archetypes in contexts, with what else may explain their failures."""

    archetypes: tuple[str, ...]
    contexts: tuple[str, ...]
    archetype: Codes
    """Shape (runs,): index into `archetypes`."""
    in_context: Flags
    """Shape (runs, contexts): contexts may overlap."""
    confounders: Mapping[str, Codes]
    """Name to codes from 0 on, shape (runs,); for ordered ones neighbouring codes are neighbouring values."""
    failed: Flags
    """Shape (runs,). Failures that are the user's own are not failures here."""
    clusters: Mapping[str, Codes] = field(default_factory=dict)
    """Kind of cluster, such as `host`, to codes from 0 on, shape (runs,): runs of one cluster share causes."""

    def __len__(self) -> int:
        return len(self.failed)


class Counts(NamedTuple):
    """Runs and failures by archetype, context and stratum."""

    exposed_runs: NDArray[np.float64]
    """Shape (archetypes, contexts, strata): runs of the archetype in the context."""
    exposed_failures: NDArray[np.float64]
    runs: NDArray[np.float64]
    """Shape (archetypes, strata): all runs of the archetype."""
    failures: NDArray[np.float64]

    @property
    def strata(self) -> Strata:
        """Exposed runs and those of the same archetype outside the context."""
        others = self.runs[:, None, :] - self.exposed_runs
        others_failed = self.failures[:, None, :] - self.exposed_failures
        ok = self.exposed_runs - self.exposed_failures
        return Strata(self.exposed_failures, ok, others_failed, others - others_failed)


@dataclass(frozen=True)
class Stratified:
    """Counts by exact strata of the confounders."""

    counts: Counts
    confounders: tuple[str, ...]
    """What the strata keep apart; a name with `/2` was made coarser once."""
    unmatched_ratio: float
    """The share of exposed runs without another run in their stratum."""
    stratum: Codes
    """Shape (runs,): the stratum of each run."""


def stratified(seen: Observations) -> Stratified:
    """The counts by the finest strata in which enough runs have a counterpart.

    The confounder with the most levels is halved first: neighbouring levels become one.
    """
    levels = {name: codes.astype(np.int64) for name, codes in seen.confounders.items()}
    halvings = dict.fromkeys(levels, 0)
    while True:
        stratum = strata_of(list(levels.values()), len(seen))
        counts = _counted(seen, stratum)
        unmatched = _unmatched(counts)
        widest = max(levels, key=lambda name: int(levels[name].max(initial=0)), default="")
        if unmatched <= 1 - LEAST_MATCHED_RATIO or not widest or not levels[widest].any():
            names = tuple(name + "/2" * halvings[name] for name in levels)
            return Stratified(counts, names, unmatched, stratum)
        levels[widest] = levels[widest] // 2
        halvings[widest] += 1


class Adjusted(NamedTuple):
    """What each context does within each archetype."""

    odds: LogOddsRatio
    """Shape (archetypes, contexts), adjusted for the other contexts and the confounders."""
    together: tuple[tuple[tuple[int, ...], ...], ...]
    """For each archetype and context: the contexts that cannot be separated from it; they share one estimate."""


def adjusted(seen: Observations) -> Adjusted:
    """One regression for each archetype, so that a confounder may act differently on each."""
    confounders = [codes[:, None] == np.arange(1, int(codes.max(initial=0)) + 1) for codes in seen.confounders.values()]
    others = np.concatenate([*confounders, np.ones((len(seen), 1), dtype=bool)], axis=1)
    values, variances, together = [], [], []
    for number in range(len(seen.archetypes)):
        own = seen.archetype == number
        signs = _inseparable(seen.in_context[own])
        # The first of those that cannot be separated stands for all of them; one that is its opposite has its sign.
        first = np.argmax(signs != 0, axis=1)
        chosen, place = np.unique(first, return_inverse=True)
        columns = np.concatenate([seen.in_context[own][:, chosen], others[own]], axis=1)
        found = fit(columns, seen.failed[own], np.full(columns.shape[1], PENALTY))
        values.append(found.value[place] * signs[np.arange(len(first)), first])
        variances.append(np.diag(found.covariance)[place])
        np.fill_diagonal(signs, 0)
        together.append(tuple(tuple(int(other) for other in np.flatnonzero(row)) for row in signs))
    return Adjusted(LogOddsRatio(np.array(values), np.array(variances)), tuple(together))


def _inseparable(in_context: Flags) -> Codes:
    """Shape (contexts, contexts): 1 where two contexts nearly always come together, -1 where one nearly always comes
    when the other does not, 0 otherwise."""
    present = in_context.astype(float)
    counts = present.sum(axis=0)
    both = present.T @ present
    neither = len(present) - counts[:, None] - counts + both
    one = counts[:, None] + counts - 2 * both
    same = np.minimum(_share(both, one), _share(neither, one)) >= INSEPARABLE_RATIO
    opposite = np.minimum(_share(one, both), _share(one, neither)) >= INSEPARABLE_RATIO
    return np.where(np.eye(len(counts), dtype=bool) | same, 1, np.where(opposite, -1, 0)).astype(np.int64)


def _share(part: NDArray[np.float64], rest: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of `part` in the sum of both; 0 where there is nothing."""
    whole = part + rest
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


def codes_of(values: Sequence[object] | NDArray[Any]) -> Codes:
    """Codes of a confounder's values: text in alphabetical order, numbers in order and in bins where there are many."""
    column = np.asarray(values)
    kinds, codes = np.unique(column, return_inverse=True)
    if np.issubdtype(column.dtype, np.number) and len(kinds) > LARGEST_UNBINNED:
        edges = np.quantile(column, np.arange(1, BINS) / BINS)
        codes = np.searchsorted(edges, column, side="right")
    return codes.astype(np.int64)


def strata_of(columns: Sequence[Codes], runs: int) -> Codes:
    """One code for each combination of values that occurs."""
    combined = np.zeros(runs, dtype=np.int64)
    for column in columns:
        _, combined = np.unique(combined * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    return combined


def _counted(seen: Observations, strata: Codes) -> Counts:
    archetypes, width = len(seen.archetypes), int(strata.max(initial=0)) + 1
    cell = seen.archetype * width + strata

    def count(chosen: Flags) -> NDArray[np.float64]:
        return np.bincount(cell[chosen], minlength=archetypes * width).reshape(archetypes, width).astype(float)

    exposed = [seen.in_context[:, context] for context in range(len(seen.contexts))]
    return Counts(
        np.stack([count(chosen) for chosen in exposed], axis=1),
        np.stack([count(chosen & seen.failed) for chosen in exposed], axis=1),
        count(np.ones(len(seen), dtype=bool)),
        count(seen.failed),
    )


def _unmatched(counts: Counts) -> float:
    others = counts.runs[:, None, :] - counts.exposed_runs
    exposed = counts.exposed_runs.sum()
    return float(counts.exposed_runs[others == 0].sum() / exposed) if exposed else 0.0
