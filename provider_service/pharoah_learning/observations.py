"""Production runs as learning counts them: columns of codes, one entry for each run.

Runs say more together than one by one, so they are columns (numpy) and not objects. `python -m evaluation learning
--part scale` measures what ten million of them cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.logistic import CHUNK_RUNS, fit
from pharoah_learning.models.mantel_haenszel import LogOddsRatio, Strata
from pharoah_learning.models.newton import Fitted
from pharoah_learning.run_groups import Codes as Codes
from pharoah_learning.run_groups import Flags as Flags
from pharoah_learning.run_groups import RunGroups, group_runs

MAX_UNBINNED = 24
"""A numeric confounder with more different values is put into bins of equal numbers of runs."""
BINS = 5
MIN_MATCHED_RATIO = 0.8
"""Strata are made coarser until so many of the exposed runs have another run in their stratum."""

COUNTED_AT_ONCE = 5
"""Contexts that are counted together: a table of 2 to the power of 5 entries for each stratum stays in a processor's
cache."""
MAX_TABLE = 4
"""Codes are numbered by a table of all possible ones, which may be so many times as long as the codes; else they are
sorted, which takes ten times as long."""

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
    """Name to codes from 0 on, shape (runs,); for ordered ones neighbouring codes are neighbouring values. Codes of one
    byte take an eighth of the memory of long ones."""
    failed: Flags
    """Shape (runs,). Failures that are the user's own are not failures here."""
    clusters: Mapping[str, Codes] = field(default_factory=dict)
    """Kind of cluster, such as `host`, to codes from 0 on, shape (runs,): runs of one cluster share causes."""

    def __len__(self) -> int:
        return len(self.failed)

    @cached_property
    def groups(self) -> tuple[RunGroups, ...]:
        """The runs of each archetype, those that agree in everything but their end as one."""
        return tuple(self._group_archetype(number) for number in range(len(self.archetypes)))

    @cached_property
    def facts(self) -> tuple[Codes, ...]:
        """The contexts of each fact that has several values, such as `driver=525` and `driver=470`."""
        found: dict[str, list[int]] = {}
        for number, context in enumerate(self.contexts):
            name, equals, _ = context.partition("=")
            if equals:
                found.setdefault(name, []).append(number)
        return tuple(np.array(own) for own in found.values() if len(own) > 1)

    @cached_property
    def finest(self) -> Codes:
        """Shape (runs,): the stratum of each run that no other combination of confounders shares."""
        return strata_of(list(self.confounders.values()), len(self))

    def _group_archetype(self, number: int) -> RunGroups:
        own = np.flatnonzero(self.archetype == number)
        return group_runs(
            self.in_context.take(own, axis=0), [codes[own] for codes in self.confounders.values()], self.failed[own]
        )


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
    coarse: Codes
    """Shape (finest strata,): the stratum that each of `Observations.finest` became a part of."""


def stratify(seen: Observations) -> Stratified:
    """The counts by the finest strata in which enough runs have a counterpart.

    The confounder with the most levels is halved first: neighbouring levels become one.
    """
    names = tuple(seen.confounders)
    columns = [np.concatenate(parts) for parts in zip(*(group.confounders for group in seen.groups), strict=True)]
    strata = strata_of(columns, sum(len(group.runs) for group in seen.groups))
    counts = _count(seen.groups, strata)
    width = counts.runs.shape[-1]
    levels = {name: _level_of(strata, column, width) for name, column in zip(names, columns, strict=True)}
    halvings = dict.fromkeys(names, 0)
    coarse: Codes = np.arange(width)
    while True:
        unmatched = _measure_unmatched(counts)
        widest = max(names, key=lambda name: int(levels[name].max(initial=0)), default="")
        if unmatched <= 1 - MIN_MATCHED_RATIO or not widest or not levels[widest].any():
            return Stratified(counts, tuple(name + "/2" * halvings[name] for name in names), unmatched, coarse)
        levels[widest] = levels[widest] // 2
        halvings[widest] += 1
        coarser = strata_of(list(levels.values()), counts.runs.shape[-1])
        levels = {name: _level_of(coarser, level, int(coarser.max()) + 1) for name, level in levels.items()}
        counts, coarse = Counts(*(_merge(part, coarser) for part in counts)), coarser[coarse]


class ArchetypeFit(NamedTuple):
    """The regression of one archetype."""

    chosen: Codes
    """The contexts that have columns of their own; the others stand with one of them."""
    place: NDArray[np.int64]
    """Shape (contexts,): the column of each context."""
    sign: NDArray[np.int64]
    """Shape (contexts,): -1 where the context is the opposite of its column, 0 where nothing is compared, else 1."""
    weights: NDArray[np.float64]
    """Shape (contexts, columns): what each context is compared with, in weights of the coefficients."""
    fitted: Fitted
    """Numbers of the columns of contexts, the levels of confounders and a constant, in this order."""


class Adjusted(NamedTuple):
    """What each context does within each archetype."""

    odds: LogOddsRatio
    """Shape (archetypes, contexts), adjusted for the other contexts and the confounders. NaN where all runs of the
    archetype are in the context, or none: there is nothing to compare, and the penalty alone would give the value."""
    together: tuple[tuple[tuple[int, ...], ...], ...]
    """For each archetype and context: the contexts that cannot be separated from it; they share one estimate."""
    fits: tuple[ArchetypeFit, ...]


def adjust(seen: Observations) -> Adjusted:
    """One regression for each archetype, so that a confounder may act differently on each."""
    levels = levels_of(seen)
    values, variances, together, fits = [], [], [], []
    for group in seen.groups:
        signs = _inseparable(group.in_context, group.runs)
        # The first of those that cannot be separated stands for all of them; one that is its opposite has its sign.
        first = np.argmax(signs != 0, axis=1)
        chosen, place = np.unique(first, return_inverse=True)
        columns = design(group, chosen, levels)
        found = fit(columns, group.failures, np.full(columns.shape[1], PENALTY), group.runs)
        weights = np.zeros((len(first), len(found.value)))
        weights[np.arange(len(first)), place] = signs[np.arange(len(first)), first]
        opposite = signs[np.arange(len(first)), first] < 0
        weights = _against_other_values(weights, group, seen.facts, first, opposite)
        compared = _vary(group.in_context)
        sign = signs[np.arange(len(first)), first] * compared
        fits.append(ArchetypeFit(chosen, place.astype(np.int64), sign, weights, found))
        values.append(np.where(compared, weights @ found.value, np.nan))
        variances.append(np.where(compared, np.einsum("ci,ij,cj->c", weights, found.covariance, weights), np.nan))
        np.fill_diagonal(signs, 0)
        for own in seen.facts:
            signs[np.ix_(own, own)] = 0
        together.append(tuple(tuple(int(other) for other in np.flatnonzero(row)) for row in signs))
    return Adjusted(LogOddsRatio(np.array(values), np.array(variances)), tuple(together), tuple(fits))


def _vary(in_context: Flags) -> Flags:
    """Which contexts some runs of an archetype are in and others are not, shape (contexts,)."""
    in_it: NDArray[np.int64] = np.count_nonzero(in_context, axis=0)
    return (in_it > 0) & (in_it < len(in_context))


def _against_other_values(
    weights: NDArray[np.float64], group: RunGroups, facts: Sequence[Codes], first: Codes, opposite: Flags
) -> NDArray[np.float64]:
    """What each context is compared with, as weights of the columns of a fit, shape (contexts, columns).

    Where every run has one of the values of a fact, such as a driver, the columns of all values and the constant say
    the same twice, and the effect of one value alone is not known. So it is compared with that of the other values, in
    the proportions of their runs. Of two values the first one, which stands for both, says everything.
    """
    counts = group.in_context.T.astype(float) @ group.runs
    found = weights.copy()
    for own in facts:
        if not np.isclose(counts[own].sum(), group.runs.sum()):
            continue
        plain = weights[own]
        plain[opposite[own] & np.isin(first[own], own)] = 0
        for place, context in enumerate(own):
            shares = np.where(np.arange(len(own)) == place, 0.0, counts[own])
            found[context] = plain[place] - shares @ plain / max(shares.sum(), 1.0)
    return found


def levels_of(seen: Observations) -> list[int]:
    """The highest level of each confounder."""
    return [int(codes.max(initial=0)) for codes in seen.confounders.values()]


def design(group: RunGroups, chosen: Codes, levels: Sequence[int]) -> Flags:
    """What the ends of runs are explained by: contexts, every level of a confounder but the first, and a constant."""
    flags = [group.in_context.T[chosen]]
    for codes, highest in zip(group.confounders, levels, strict=True):
        flags.append(codes == np.arange(1, highest + 1)[:, None])
    columns: Flags = np.concatenate([*flags, np.ones((1, len(group.runs)), dtype=bool)]).T
    return columns


def _inseparable(in_context: Flags, runs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Shape (contexts, contexts): 1 where two contexts nearly always come together, -1 where one nearly always comes
    when the other does not, 0 otherwise. One that all runs have, or none, says nothing about another one."""
    both = np.zeros((in_context.shape[1], in_context.shape[1]))
    for begin in range(0, len(runs), CHUNK_RUNS):
        present = in_context[begin : begin + CHUNK_RUNS].T.astype(np.float32)
        both += (present * runs[begin : begin + CHUNK_RUNS].astype(np.float32)) @ present.T
    counts = np.diag(both)
    neither = runs.sum() - counts[:, None] - counts + both
    one = counts[:, None] + counts - 2 * both
    same = np.minimum(_share(both, one), _share(neither, one)) >= INSEPARABLE_RATIO
    opposite = np.minimum(_share(one, both), _share(one, neither)) >= INSEPARABLE_RATIO
    varies = _vary(in_context)
    signs = np.where(same, 1, np.where(opposite, -1, 0)) * (varies & varies[:, None])
    return np.where(np.eye(len(counts), dtype=bool), 1, signs).astype(np.int64)


def _share(part: NDArray[np.float64], rest: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of `part` in the sum of both; 0 where there is nothing."""
    whole = part + rest
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


def codes_of(values: Sequence[object] | NDArray[Any]) -> Codes:
    """Codes of a confounder's values: text in alphabetical order, numbers in order and in bins where there are many."""
    column = np.asarray(values)
    kinds, codes = np.unique(column, return_inverse=True)
    if np.issubdtype(column.dtype, np.number) and len(kinds) > MAX_UNBINNED:
        edges = np.quantile(column, np.arange(1, BINS) / BINS)
        codes = np.searchsorted(edges, column, side="right")
    return codes.astype(np.int64)


def strata_of(columns: Sequence[Codes], rows: int) -> Codes:
    """One code for each combination of values that occurs, in the order of the values."""
    combined: Codes = np.zeros(rows, dtype=np.int64)
    for column in columns:
        combined = number_codes(combined * (int(column.max(initial=0)) + 1) + column)
    return combined


def number_codes(codes: Codes) -> Codes:
    """The same codes in the same order, numbered from 0 on."""
    highest = int(codes.max(initial=0))
    if highest > MAX_TABLE * max(1, len(codes)):
        return np.unique(codes, return_inverse=True)[1]
    occurs = np.zeros(highest + 1, dtype=bool)
    occurs[codes] = True
    numbered: Codes = (np.cumsum(occurs) - 1)[codes]
    return numbered


def _level_of(strata: Codes, column: Codes, width: int) -> Codes:
    """Shape (width,): the level of each stratum, all of whose members have the same one."""
    levels = np.zeros(width, dtype=np.int64)
    levels[strata] = column
    return levels


def _merge(counts: NDArray[np.float64], strata: Codes) -> NDArray[np.float64]:
    """Counts by coarser strata; `strata` has the coarser one of each."""
    merged = np.zeros((int(strata.max()) + 1, *counts.shape[:-1]))
    np.add.at(merged, strata, np.moveaxis(counts, -1, 0))
    return np.moveaxis(merged, 0, -1)


def _count(groups: Sequence[RunGroups], strata: Codes) -> Counts:
    """`strata` has the strata of all groups, those of the first archetype first."""
    width = int(strata.max(initial=0)) + 1
    own = np.split(strata, np.cumsum([len(group.runs) for group in groups])[:-1])
    runs = [_by_stratum(group.in_context, part, group.runs, width) for group, part in zip(groups, own, strict=True)]
    failures = [
        _by_stratum(group.in_context, part, group.failures, width) for group, part in zip(groups, own, strict=True)
    ]
    return Counts(
        np.array([part.exposed for part in runs]),
        np.array([part.exposed for part in failures]),
        np.array([part.all for part in runs]),
        np.array([part.all for part in failures]),
    )


class _ByStratum(NamedTuple):
    """Sums over the groups of one archetype."""

    exposed: NDArray[np.float64]
    """Shape (contexts, strata)."""
    all: NDArray[np.float64]
    """Shape (strata,)."""


def _by_stratum(in_context: Flags, strata: Codes, weights: NDArray[np.float64], width: int) -> _ByStratum:
    """Contexts are counted several at a time, by which of them a group has."""
    some = np.flatnonzero(weights)
    in_context, strata, weights = in_context.take(some, axis=0), strata[some], weights[some]
    exposed = [np.zeros((0, width))]
    for begin in range(0, in_context.shape[1], COUNTED_AT_ONCE):
        flags = in_context[:, begin : begin + COUNTED_AT_ONCE].T
        patterns = 1 << len(flags)
        pattern = strata * patterns
        for place, present in enumerate(flags):
            pattern += present * (1 << place)
        counted = np.bincount(pattern, weights, minlength=width * patterns).reshape(width, patterns)
        has = (np.arange(patterns) >> np.arange(len(flags))[:, None] & 1).astype(float)
        exposed.append(has @ counted.T)
    return _ByStratum(np.concatenate(exposed), np.bincount(strata, weights, minlength=width).astype(float))


def _measure_unmatched(counts: Counts) -> float:
    others = counts.runs[:, None, :] - counts.exposed_runs
    exposed = counts.exposed_runs.sum()
    return float(counts.exposed_runs[others == 0].sum() / exposed) if exposed else 0.0
