"""Which archetypes fail in which contexts, from production runs that nobody has randomised.

A pair is called incompatible when two judges agree. Its runs fail more often than runs of the same archetype and
stratum elsewhere (`models.mantel_haenszel`), and that difference, adjusted for other contexts, is larger than the one
which the same context makes for other archetypes (`models.contrasts`), with all contexts of an archetype together
(`models.joint_contrasts`). What cannot be decided so is said: a suspect deserves randomised cells
(`models.confirmation`), contexts that nearly always come together are inseparable, and a pair about which the contrasts
do not settle is a suspect that says so. Where the hosts of runs are known, no call rests on one of them (`clustered`).

Nothing here blocks a job: a hidden cause that is specific to one pair looks like an incompatibility in every table of
production runs, however many there are, and only randomised cells exclude it. This is a pure function of what is handed
over: the seed draws the matched pairs that are shown to people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import scipy

from pharoah_learning.clustered import ArchetypeRuns, Support, design_effects, failing_clusters, runs_of, support
from pharoah_learning.models.contrasts import MAX_FALSE_RATE, Contrasts
from pharoah_learning.models.false_discovery import q_values
from pharoah_learning.models.joint_contrasts import joint_contrasts, joint_contrasts_once
from pharoah_learning.models.matched_pairs import MatchedPairs, match_pairs
from pharoah_learning.observations import Adjusted, Flags, Observations, Stratified, adjust, levels_of, stratify
from pharoah_learning.pair_evidence import association_p, pair_evidence

ASSOCIATION_LEVEL = 0.05
"""A pair is called only where its association is refuted to be chance at this level, by itself: which pairs differ from
those of other archetypes is the search among all of them, and has the false discovery rate."""
CLUSTERED_LEVEL = 0.05
"""The same where clusters count and not runs: five hosts of equal weight must point the same way."""

MIN_ODDS_RATIO = 1.5
"""A pair with a smaller effect than this costs less than leaving its nodes unused would."""
SUSPECT_FALSE_RATE = 0.10
"""So many of the associations from which suspects are chosen may be by chance."""
MIN_FAILURES = 5
"""A pair with fewer failures is declined: nobody could check it."""

UNSETTLED = "the comparison with other archetypes does not settle"


class Call(StrEnum):
    """What production runs say about a pair."""

    INCOMPATIBLE = "incompatible"
    SUSPECT = "suspect"
    """Randomised cells have to decide."""
    INSEPARABLE = "inseparable"
    """It fails, and other contexts come with it: which of them is the cause cannot be known from runs."""
    DECLINED = "declined"
    """Its runs fail more often, and another context, a confounder or chance may be the cause."""


@dataclass(frozen=True, kw_only=True)
class PairFinding:
    """One archetype in one context, with everything that a person needs to judge it."""

    archetype: str
    context: str
    call: Call
    runs: int
    failures: int
    other_runs: int
    """Runs of the archetype outside the context, in strata that hold both."""
    other_failures: int
    odds_ratio: float
    """Within the archetype, adjusted for other contexts and the confounders."""
    low: float
    high: float
    """Its interval at 95 %."""
    excess_ratio: float
    """How many times larger the odds ratio is than within other archetypes."""
    q: float
    matched: MatchedPairs
    inseparable_from: tuple[str, ...] = ()
    """Contexts that nearly always come with this one where the archetype runs."""
    clusters: int = 0
    """Hosts, or clusters of the kind of which there are fewest, in which runs of the pair failed; 0 where unknown."""
    rests_on: str = ""
    """The kind of cluster of which one alone makes the finding; it is declined for that."""
    settled: bool = True
    """Whether the comparison with other archetypes came to an end for this pair; else it is a suspect at most."""
    reason: str = ""
    """Why it is not called; empty when it is."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PairFinding:
        """Read what `asdict` gave, also as it comes back from JSON. Raises KeyError, TypeError or ValueError."""
        together = tuple(data["inseparable_from"])
        matched = MatchedPairs(*data["matched"])
        return cls(**{**data, "call": Call(data["call"]), "matched": matched, "inseparable_from": together})


def find_incompatible_pairs(seen: Observations, seed: int) -> list[PairFinding]:
    """All pairs whose runs fail more often than others, the most certain first."""
    if not seen.contexts or not seen.failed.any():
        return []
    counted, own = stratify(seen), adjust(seen)
    found = PairContrasts(seen, counted, own).settle()
    q = q_values(found.p)
    own_p = association_p(counted.counts, seen.facts, found.aside)
    calls = _calls(found, own_p, q, counted.counts.exposed_failures.sum(axis=-1))
    asked = {a for (a, _), call in calls.items() if call is not Call.DECLINED} if seen.clusters else set()
    runs = {a: runs_of(seen, counted, a) for a in asked}
    clustered_q = q_values(_widen_p(seen, own, found, runs))
    rng = np.random.default_rng(seed)
    findings = []
    for (a, c), call in sorted(calls.items()):
        one = _finding(seen, counted, own, found, q, (a, c), call, rng)
        if seen.clusters:
            one = replace(one, clusters=failing_clusters(seen, a, c))
        if a in runs and call is not Call.DECLINED:
            left = support(runs[a], c, _no_comparison(seen, found.aside[a], c))
            one = _without_any_cluster(one, left, float(clustered_q[a, c]))
        findings.append(replace(one, reason=_reason(one)))
    return sorted(findings, key=lambda one: (one.q, one.archetype, one.context))


def _widen_p(seen: Observations, own: Adjusted, found: Contrasts, runs: Mapping[int, ArchetypeRuns]) -> np.ndarray:
    """The p of all pairs, with larger variances where the clusters of an archetype differ by more than chance."""
    p, levels = found.p.copy(), levels_of(seen)
    for a, of_archetype in runs.items():
        # What clusters widen is what the runs of the archetype say, and not the spread of ordinary pairs.
        by_chance = np.fmin(own.odds.variance[a], found.excess.variance[a] - found.spread)
        widened = found.excess.variance[a] + by_chance * (design_effects(of_archetype, own.fits[a], levels) - 1)
        wider = scipy.stats.norm.sf(found.excess.value[a] / np.sqrt(widened))
        p[a] = np.fmax(p[a], wider)
    return p


class PairContrasts:
    """The two judges of all pairs of some runs."""

    def __init__(self, seen: Observations, counted: Stratified, own: Adjusted) -> None:
        self._seen, self._counted = seen, counted
        self._evidence = pair_evidence(seen, own)
        deviation = own.odds.value / np.sqrt(own.odds.variance)
        self._adjusted_p = np.nan_to_num(scipy.stats.norm.sf(deviation), nan=1.0)

    def settle(self) -> Contrasts:
        """The contrasts after as many rounds as it takes; they say about which pairs the rounds did not end."""
        return joint_contrasts(self._evidence, self._judge)

    def once(self, aside: Flags) -> Contrasts:
        """The contrasts of one round with these pairs set aside."""
        return joint_contrasts_once(self._evidence, self._judge, aside)

    def _judge(self, aside: Flags, excess_p: np.ndarray) -> np.ndarray:
        """An association must be refuted to be chance in one of two ways: within strata, or adjusted for contexts."""
        p = np.minimum(association_p(self._counted.counts, self._seen.facts, aside), self._adjusted_p)
        return np.where(p <= ASSOCIATION_LEVEL, excess_p, np.maximum(p, excess_p))


def _no_comparison(seen: Observations, aside: Flags, context: int) -> np.ndarray:
    """The other values of the fact of a context that are set aside."""
    values = [own for own in seen.facts if context in own]
    return np.array([int(c) for own in values for c in own if aside[c] and c != context], dtype=np.int64)


def _without_any_cluster(one: PairFinding, left: Support, clustered_q: float) -> PairFinding:
    """The finding as far as its clusters carry it: runs of one host are not so many pieces of evidence."""
    call = one.call
    if left.rests_on:
        call = Call.DECLINED
    elif left.p > CLUSTERED_LEVEL or clustered_q > MAX_FALSE_RATE:
        call = Call.SUSPECT
    return replace(one, call=call, rests_on=left.rests_on, q=max(one.q, clustered_q))


def _reason(one: PairFinding) -> str:
    if one.rests_on:
        return f"rests on one {one.rests_on}"
    if not one.settled:
        return UNSETTLED
    match one.call:
        case Call.INCOMPATIBLE:
            return ""
        case Call.SUSPECT:
            return "too few runs or clusters to call it"
        case Call.INSEPARABLE:
            return "another context comes with it"
        case Call.DECLINED:
            return "another context, a confounder or chance may be the cause"


def _calls(found: Contrasts, own_p: np.ndarray, q: np.ndarray, failures: np.ndarray) -> dict[tuple[int, int], Call]:
    """What each pair is called whose association is not chance."""
    enough = failures >= MIN_FAILURES
    large = (np.exp(found.excess.value) >= MIN_ODDS_RATIO) & enough
    called = large & (q <= MAX_FALSE_RATE) & ~found.unsettled
    associated = (q_values(own_p) <= SUSPECT_FALSE_RATE) & enough
    suspect = large & (found.unsettled | (associated & (found.excess_p <= MAX_FALSE_RATE)))
    return {
        (int(a), int(c)): Call.INCOMPATIBLE if called[a, c] else Call.SUSPECT if suspect[a, c] else Call.DECLINED
        for a, c in np.argwhere(associated | called | suspect | (found.unsettled & enough))
    }


def _finding(
    seen: Observations,
    counted: Stratified,
    own: Adjusted,
    found: Contrasts,
    q: np.ndarray,
    pair: tuple[int, int],
    call: Call,
    rng: np.random.Generator,
) -> PairFinding:
    a, c = pair
    together = own.together[a][c]
    runs, failures = counted.counts.exposed_runs[a, c], counted.counts.exposed_failures[a, c]
    others, others_failed = counted.counts.runs[a] - runs, counted.counts.failures[a] - failures
    both = (runs > 0) & (others > 0)
    half = 1.96 * float(np.sqrt(own.odds.variance[a, c]))
    value = float(own.odds.value[a, c])
    return PairFinding(
        archetype=seen.archetypes[a],
        context=seen.contexts[c],
        call=Call.INSEPARABLE if together and call is Call.INCOMPATIBLE else call,
        runs=int(runs.sum()),
        failures=int(failures.sum()),
        other_runs=int(others[both].sum()),
        other_failures=int(others_failed[both].sum()),
        odds_ratio=float(np.exp(value)),
        low=float(np.exp(value - half)),
        high=float(np.exp(value + half)),
        excess_ratio=float(np.exp(found.excess.value[a, c])),
        q=float(q[a, c]),
        matched=match_pairs(runs, failures, others, others_failed, rng),
        inseparable_from=tuple(seen.contexts[other] for other in together),
        settled=not found.unsettled[a, c],
    )
