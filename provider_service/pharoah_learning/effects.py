"""What a context does to the throughput of a model, from runs of other people that nobody has randomised.

Two values of one column, such as two drivers, are compared within strata that agree in everything else that can be held
equal: first in the cluster itself (pairs within one host), then in each other column, in the order in which the columns
are given. A column that cannot be held equal, because it changes whenever the two values do, is inseparable from them.
Clusters count, not runs (`models.run_clusters`): an effect that rests on one host or one submitter is declined.
Throughput is compared, and not the time until a model is trained, which depends on chance.

This is a pure function of what is handed over, without randomness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.contrasts import MAX_FALSE_RATE
from pharoah_learning.models.false_discovery import q_values
from pharoah_learning.models.run_clusters import difference
from pharoah_learning.observations import Codes, Flags, strata_of
from pharoah_protocol.vocabulary import Grade

SUSPECT_FALSE_RATE = 0.10
MIN_CHANGE_RATIO = 1.02
"""A smaller effect is declined: identical runs on one host differ by so much (`docs/adr/0037-runs-of-others.md`)."""
MIN_CLUSTERS = 3
"""A column is held equal only while so many clusters are left on both sides: two have no spread to speak of."""

Names = NDArray[Any]
"""Text of each run, shape (runs,); empty where it is not known."""


class EffectCall(StrEnum):
    """What past runs say about two values of a column."""

    CALLED = "called"
    SUSPECT = "suspect"
    """It may be chance; randomised cells have to decide."""
    INSEPARABLE = "inseparable"
    """There is a difference, and other columns change with the value: which of them makes it cannot be known."""
    DECLINED = "declined"


@dataclass(frozen=True)
class Measured:
    """Runs whose throughput was measured."""

    subject: Names
    """The model of each run. Runs of different models are never compared."""
    columns: Mapping[str, Names]
    """Everything that may explain the throughput, the most important first."""
    factors: tuple[str, ...]
    """The columns whose values are compared; the others are only held equal."""
    clusters: Mapping[str, Names]
    """Kind of cluster, such as `host`, to its name; runs without a name are one cluster."""
    throughput: NDArray[np.float64]
    """In units of which only ratios count, above 0."""


@dataclass(frozen=True, kw_only=True)
class EffectFinding:
    """One value of a column against another one, for one model."""

    subject: str
    column: str
    value: str
    against: str
    call: EffectCall
    grade: Grade
    runs: int
    other_runs: int
    clusters: int
    """Clusters with the value, and with the other one, whichever are fewer; of the kind of which there are fewest."""
    ratio: float
    """Throughput with the value over that with the other one."""
    low: float
    """Its interval at 95 %."""
    high: float
    p: float
    q: float = 1.0
    least_ratio: float
    """The ratio that is left without the cluster that supports it most; NaN when nothing is left."""
    held_equal: tuple[str, ...]
    inseparable_from: tuple[str, ...]
    rests_on: str
    """The kind of cluster of which one alone makes the effect; empty where none does."""
    reason: str
    """Why it is not called; empty when it is."""

    @property
    def sensitivity(self) -> float:
        """A hidden cause that changes throughput by this ratio could explain the effect; 1 where chance could."""
        return max(1.0, self.low, 1 / self.high if self.high > 0 else 1.0)


def find_effects(seen: Measured) -> list[EffectFinding]:
    """All values that can be compared with another one, the most certain first."""
    found = [_effect(seen, one) for one in _comparisons(seen)]
    testable = [one for one in found if np.isfinite(one.high)]
    q = dict(zip(map(id, testable), q_values(np.array([one.p for one in testable])), strict=True)) if testable else {}
    judged = [_judge(replace(one, q=float(q.get(id(one), 1.0)))) for one in found]
    return sorted(judged, key=lambda one: (one.q, one.subject, one.column, one.value, one.against))


class _Comparison(NamedTuple):
    subject: str
    column: str
    value: str
    against: str
    rows: Codes
    """The runs with either value."""


def _comparisons(seen: Measured) -> Iterator[_Comparison]:
    """Each value with the value with which it shares most strata of the columns that are only held equal."""
    settings = [_codes(values) for name, values in seen.columns.items() if name not in seen.factors]
    for subject in np.unique(seen.subject):
        own = np.flatnonzero(seen.subject == subject)
        stratum = strata_of([codes[own] for codes in settings], len(own))
        for column in seen.factors:
            names = seen.columns[column][own]
            done: set[frozenset[str]] = set()
            for value in np.unique(names[names != ""]):
                against = _nearest(names, stratum, value)
                if against and frozenset((value, against)) not in done:
                    done.add(frozenset((value, against)))
                    rows = own[(names == value) | (names == against)]
                    yield _Comparison(str(subject), column, str(value), against, rows)


def _nearest(names: Names, stratum: Codes, value: str) -> str:
    """The other value with most runs in the strata of this one, else with most runs; empty when there is none."""
    inside = np.isin(stratum, stratum[names == value])
    for chosen in (inside, np.ones(len(names), dtype=bool)):
        others, counts = np.unique(names[chosen & (names != value) & (names != "")], return_counts=True)
        if len(others):
            return str(others[np.argmax(counts)])
    return ""


def _effect(seen: Measured, one: _Comparison) -> EffectFinding:
    """The comparison with everything held equal that can be."""
    clusters = {name: _codes(names[one.rows]) for name, names in seen.clusters.items()}
    others = {name: names[one.rows] for name, names in seen.columns.items() if name != one.column}
    in_group = seen.columns[one.column][one.rows] == one.value
    design = _hold_equal(in_group, clusters, others)
    kept = _comparable(in_group, design.stratum)
    rows = one.rows[kept]
    values = np.log(seen.throughput[rows])
    results = [
        (name, difference(values, in_group[kept], design.stratum[kept], codes[kept]))
        for name, codes in clusters.items()
    ]
    kind, worst = max(results, key=lambda result: (np.isnan(result[1].least), result[1].high - result[1].low))
    fewest = _fewest(in_group, design.stratum, clusters)
    unknown = [name for name in design.held if name in others and (others[name][kept] == "").any()]
    return EffectFinding(
        subject=one.subject,
        column=one.column,
        value=one.value,
        against=one.against,
        call=EffectCall.DECLINED,
        grade=Grade.ASSOCIATION if unknown or design.inseparable else Grade.MATCHED,
        runs=int(in_group[kept].sum()),
        other_runs=int((~in_group[kept]).sum()),
        clusters=fewest,
        ratio=float(np.exp(worst.value)),
        low=float(np.exp(worst.low)),
        high=float(np.exp(worst.high)),
        p=max(result.p for _, result in results),
        least_ratio=float(np.exp(worst.least)),
        held_equal=design.held,
        inseparable_from=design.inseparable,
        rests_on=kind if fewest < 2 or not worst.least * np.sign(worst.value) > 0 else "",
        reason="",
    )


def _judge(one: EffectFinding) -> EffectFinding:
    """The finding with its call. The reasons are tried in order of what a reader must know first."""
    if one.rests_on and (one.clusters < 2 or one.q <= SUSPECT_FALSE_RATE):
        return replace(one, reason=f"rests on one {one.rests_on}")
    if one.q > SUSPECT_FALSE_RATE:
        return replace(one, reason="no clear difference")
    if max(one.ratio, 1 / one.ratio) < MIN_CHANGE_RATIO:
        return replace(one, reason="too small to matter")
    changing = f"changes with {', '.join(one.inseparable_from)}" if one.inseparable_from else ""
    if one.q > MAX_FALSE_RATE:
        return replace(one, call=EffectCall.SUSPECT, reason="; ".join(filter(None, ("may be chance", changing))))
    call = EffectCall.INSEPARABLE if changing else EffectCall.CALLED
    return replace(one, call=call, reason=changing)


class _Design(NamedTuple):
    stratum: Codes
    held: tuple[str, ...]
    inseparable: tuple[str, ...]


def _hold_equal(in_group: Flags, clusters: Mapping[str, Codes], others: Mapping[str, Names]) -> _Design:
    """The comparison that holds most equal: within clusters, or between clusters where that keeps more columns apart.

    Clusters are not inseparable: that hosts differ is what the spread between clusters is for. The throughput is not
    looked at, so the choice favours no result.
    """
    columns = {name: _codes(names) for name, names in others.items()}
    within = _design(in_group, clusters, {**clusters, **columns})
    between = _design(in_group, clusters, columns)
    return between if len(between.inseparable) < len(within.inseparable) else within


def _design(in_group: Flags, clusters: Mapping[str, Codes], columns: Mapping[str, Codes]) -> _Design:
    """The strata of all columns that leave enough clusters on both sides, tried one after another."""
    stratum: Codes = np.zeros(len(in_group), dtype=np.int64)
    held, inseparable = [], []
    for name, codes in columns.items():
        finer = strata_of([stratum, codes], len(in_group))
        if _fewest(in_group, finer, clusters) >= MIN_CLUSTERS:
            stratum = finer
            held.append(name)
        elif name not in clusters:
            compared = _comparable(in_group, stratum)
            if _differs(codes[compared], stratum[compared]):
                inseparable.append(name)
    return _Design(stratum, tuple(held), tuple(inseparable))


def _differs(codes: Codes, stratum: Codes) -> bool:
    """Whether runs of one stratum differ in a column."""
    pairs = np.unique(np.stack([stratum, codes]), axis=1)
    return bool(pairs.shape[1] > len(np.unique(stratum)))


def _comparable(in_group: Flags, stratum: Codes) -> Flags:
    """The runs whose stratum holds both values."""
    width = int(stratum.max(initial=0)) + 1
    both = np.minimum(np.bincount(stratum[in_group], minlength=width), np.bincount(stratum[~in_group], minlength=width))
    return np.asarray(both[stratum] > 0)


def _fewest(in_group: Flags, stratum: Codes, clusters: Mapping[str, Codes]) -> int:
    """The smallest number of clusters on a side, over both sides and all kinds of clusters."""
    kept = _comparable(in_group, stratum)
    sides = [len(np.unique(codes[kept & side])) for codes in clusters.values() for side in (in_group, ~in_group)]
    return min(sides, default=0)


def _codes(names: Names) -> Codes:
    return np.unique(names, return_inverse=True)[1].astype(np.int64)
