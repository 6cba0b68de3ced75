"""Which archetypes fail in which contexts, from production runs that nobody has randomised.

A pair is called incompatible when two judges agree. Its runs fail more often than runs of the same archetype and
stratum elsewhere (`models.mantel_haenszel`), and that difference, adjusted for other contexts, is larger than the one
which the same context makes for other archetypes (`models.contrasts`). What cannot be decided so is said: a suspect
deserves randomised cells (`models.confirmation`), and contexts that nearly always come together are inseparable. Where
the hosts of runs are known, no call rests on one of them (`clustered`).

Nothing here blocks a job: a hidden cause that is specific to one pair looks like an incompatibility in every table of
production runs, however many there are, and only randomised cells exclude it. This is a pure function of what is handed
over: the seed draws the matched pairs that are shown to people.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from pharoah_learning.clustered import clustered_p_values, support
from pharoah_learning.models.contrasts import LARGEST_FALSE_RATE, Contrasts, contrasts
from pharoah_learning.models.false_discovery import q_values
from pharoah_learning.models.mantel_haenszel import p_values
from pharoah_learning.models.matched_pairs import MatchedPairs, matched_pairs
from pharoah_learning.observations import Adjusted, Observations, Stratified, adjusted, stratified

LEAST_ODDS_RATIO = 1.5
"""A pair with a smaller effect than this costs less than leaving its nodes unused would."""
SUSPECT_FALSE_RATE = 0.10
"""So many of the associations from which suspects are chosen may be by chance."""
LEAST_FAILURES = 5
"""A pair with fewer failures is declined: nobody could check it."""


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
    counted = stratified(seen)
    own_p = p_values(counted.counts.strata)
    own = adjusted(seen)
    found = contrasts(own.odds, own_p)
    q = q_values(found.p)
    calls = _calls(found, own_p, q, counted.counts.exposed_failures.sum(axis=-1))
    clustered_q = q_values(np.maximum(found.p, clustered_p_values(seen, counted)))
    rng = np.random.default_rng(seed)
    findings = []
    for pair, call in sorted(calls.items()):
        one = _finding(seen, counted, own, found, q, pair, call, rng)
        findings.append(_without_any_cluster(one, seen, counted, pair, float(clustered_q[pair])))
    return sorted(findings, key=lambda one: (one.q, one.archetype, one.context))


def _without_any_cluster(
    one: PairFinding, seen: Observations, counted: Stratified, pair: tuple[int, int], clustered_q: float
) -> PairFinding:
    """The finding as far as its clusters carry it: runs of one host are not so many pieces of evidence."""
    if not seen.clusters:
        return replace(one, reason=_reason(one.call, ""))
    clusters, rests_on = support(seen, counted, *pair)
    call = one.call
    if rests_on:
        call = Call.DECLINED
    elif call is not Call.DECLINED and clustered_q > LARGEST_FALSE_RATE:
        call = Call.SUSPECT
    q = max(one.q, clustered_q)
    return replace(one, call=call, clusters=clusters, rests_on=rests_on, q=q, reason=_reason(call, rests_on))


def _reason(call: Call, rests_on: str) -> str:
    if rests_on:
        return f"rests on one {rests_on}"
    match call:
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
    associated = (q_values(own_p) <= SUSPECT_FALSE_RATE) & (failures >= LEAST_FAILURES)
    large = np.exp(found.excess.value) >= LEAST_ODDS_RATIO
    called = associated & large & (q <= LARGEST_FALSE_RATE)
    suspect = associated & large & (found.excess_p <= LARGEST_FALSE_RATE)
    return {
        (int(a), int(c)): Call.INCOMPATIBLE if called[a, c] else Call.SUSPECT if suspect[a, c] else Call.DECLINED
        for a, c in np.argwhere(associated)
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
        matched=matched_pairs(runs, failures, others, others_failed, rng),
        inseparable_from=tuple(seen.contexts[other] for other in together),
    )
