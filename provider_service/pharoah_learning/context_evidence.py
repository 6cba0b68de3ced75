"""Which facts a release ignores: those for which trials show that they do not matter.

Absence of evidence is not evidence, so a fact is ignored where all of this holds, and kept otherwise:

* it is no known cause (`context_rule.KNOWN_CAUSES`);
* at least two nodes have each of the values that are compared (one node proves nothing, ADR 21);
* trials of the same cell on nodes of both sides, matched pair by pair, refute a difference of 10 points in the failure
  rate, in either direction (`models.equivalence`);
* no cell fails in the same way on two nodes of one side and not on the other, and none is much slower there;
* the judges of many runs (`relevant_facts`) do not call it.

The sides are compared among nodes that agree in all known causes, and in all facts that were found to make a
difference. Facts that always come together are compared together: that one helps where the other harms, by the same
amount, is not excluded. This is a pure function of the trials; the auditor learns the same rule.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import median
from typing import NamedTuple

import numpy as np

from pharoah_learning.context_rule import ABSENT, KNOWN_CAUSES, ContextRule, IgnoredFact, KnownContext, values_of
from pharoah_learning.evidence import OutcomeReport, Trial
from pharoah_learning.models.equivalence import PairedCounts, largest_difference
from pharoah_learning.observations import Codes, codes_of
from pharoah_learning.opinions import MIN_NODES, NodeOutcome, NodeOutcomes
from pharoah_learning.relevant_facts import FactRuns, find_relevant_facts
from pharoah_learning.slow_trials import SLOW_RATIO
from pharoah_protocol.vocabulary import Outcome

MAX_DIFFERENCE = 0.10
"""Failure rates that differ by less are equal: 25 matched pairs without a disagreement show it (ADR 36)."""
SLOWER_RATIO = 1.2
"""Nodes whose steps take so much longer are another context: the slowdown that deserves an alert (ADR 4)."""


@dataclass(frozen=True)
class LearnedContexts:
    """What trials show about facts."""

    rule: ContextRule
    kept: Mapping[str, str]
    """Facts with more than one value that count, with the reason."""

    def lines(self) -> list[str]:
        """One line for each fact that is ignored or has more than one value."""
        ignored = [f"fact {fact.name} does not matter: {fact.reason}" for fact in self.rule.ignored]
        return [*ignored, *(f"fact {name} counts: {reason}" for name, reason in sorted(self.kept.items()))]


class _Compared(NamedTuple):
    """One value of a fact beside others."""

    pairs: int
    difference: float
    """The largest difference of failure rates that is not refuted."""
    effect: str
    """What speaks for a difference; empty where nothing does."""
    missing: str
    """What is missing to show that there is none; empty where nothing is."""


class _Decided(NamedTuple):
    """The facts that make no difference, and the reasons of those without enough evidence and those that make one."""

    ignored: list[IgnoredFact]
    undecided: dict[str, str]
    differing: dict[str, str]


@dataclass(frozen=True)
class _Seen:
    """One trial with the values of all facts."""

    trial: Trial
    values: Mapping[str, str]
    content: str
    """Workload, settings and device, as JSON."""


@dataclass(frozen=True)
class _Side:
    """The trials of one cell on the nodes of one side, oldest first, each block once."""

    trials: Sequence[Trial]

    @property
    def outcomes(self) -> NodeOutcomes:
        return NodeOutcomes.from_outcomes(NodeOutcome(trial.node, trial.outcome) for trial in self.trials)

    @property
    def step_seconds(self) -> float | None:
        """The median over nodes of their usual step time; None where fewer than two nodes have one."""
        by_node: dict[str, list[float]] = defaultdict(list)
        for trial in self.trials:
            if trial.outcome is Outcome.OK and len(trial.step_seconds) > 1:
                by_node[trial.node].append(median(trial.step_seconds[1:]))
        usual = [median(steps) for steps in by_node.values()]
        return median(usual) if len(usual) >= MIN_NODES else None


def learn_contexts(trials: Iterable[Trial]) -> LearnedContexts:
    """The rule that these usable trials support. Trials without facts, from before they were kept, support none."""
    seen = _list_seen(trials)
    names = sorted(seen[0].values) if seen else []
    varying = [name for name in names if len({one.values[name] for one in seen}) > 1]
    causes = {name: KNOWN_CAUSES[name] for name in varying if name in KNOWN_CAUSES}
    called = _judge_called(seen, varying)
    found = _decide(seen, [name for name in varying if name not in causes], tuple(causes))
    rule = ContextRule(tuple(fact for fact in found.ignored if fact.name not in called))
    return LearnedContexts(rule, {**found.undecided, **called, **found.differing, **causes})


def in_contexts(trials: Iterable[Trial], rule: ContextRule) -> list[Trial]:
    """The trials in the contexts of a rule. Trials without facts stay in theirs."""
    return [replace(trial, context_id=rule.context_of(trial.facts)) if trial.facts else trial for trial in trials]


def outcomes_in_contexts(reports: Iterable[OutcomeReport], rule: ContextRule) -> list[OutcomeReport]:
    """What tenants share, in the contexts of a rule. Reports without facts stay in their contexts."""
    return [replace(one, context_id=rule.context_of(one.facts)) if one.facts else one for one in reports]


def describe_contexts(trials: Iterable[Trial], rule: ContextRule) -> tuple[KnownContext, ...]:
    """The contexts of trials with facts, described in plain words."""
    facts = {rule.context_of(trial.facts): trial.facts for trial in trials if trial.facts}
    return tuple(
        KnownContext(context_id=name, facts=rule.relevant(own), description=rule.describe(own))
        for name, own in sorted(facts.items())
    )


def _list_seen(trials: Iterable[Trial]) -> list[_Seen]:
    """Trials with facts, oldest first; each has a value of every fact, and each block counts once for a cell."""
    with_facts = sorted(
        (trial for trial in trials if trial.facts), key=lambda trial: (trial.ran_at, trial.trial_id, trial.node)
    )
    own = [values_of(trial.facts) for trial in with_facts]
    names = sorted({name for values in own for name in values})
    found: dict[tuple[str, ...], _Seen] = {}
    for number, (trial, values) in enumerate(zip(with_facts, own, strict=True)):
        content = json.dumps([trial.workload, trial.settings, trial.device], sort_keys=True, default=str)
        key = (content, trial.node, trial.block or str(number))
        found.setdefault(key, _Seen(trial, {name: values.get(name, ABSENT) for name in names}, content))
    return list(found.values())


def _judge_called(seen: Sequence[_Seen], names: Sequence[str]) -> dict[str, str]:
    """Facts that the judges of many runs call, with the reason."""
    failed = np.array([one.trial.outcome is not Outcome.OK for one in seen], dtype=bool)
    if not names or failed.all() or not failed.any():
        return {}
    contents = sorted({one.content for one in seen})
    number: dict[str, int] = {content: at for at, content in enumerate(contents)}
    codes: dict[str, Codes] = {name: codes_of([one.values[name] for one in seen]) for name in names}
    archetype = np.array([number[one.content] for one in seen], dtype=np.int64)
    found = find_relevant_facts(FactRuns(tuple(contents), archetype, codes, {}, failed))
    return {
        finding.fact: f"it changes how often cells fail (odds ratio {finding.odds_ratio:.2g}, q {finding.q:.2g})"
        if not finding.archetypes
        else f"it changes how often {len(finding.archetypes)} of {len(contents)} cells fail"
        for finding in found
        if finding.relevant
    }


def _decide(seen: Sequence[_Seen], candidates: Sequence[str], causes: tuple[str, ...]) -> _Decided:
    """What is known of each candidate.

    A fact that makes a difference may do so only because it comes with another one that does. So each is compared again
    among nodes that agree in the others that make a difference, until nothing changes.
    """
    differing = dict.fromkeys(candidates, "")
    first = True
    while True:
        ignored, undecided, still = list[IgnoredFact](), dict[str, str](), dict[str, str]()
        for name in candidates:
            others = () if first else tuple(other for other in differing if other != name)
            found = _fact(seen, name, (*causes, *others))
            match found:
                case IgnoredFact():
                    ignored.append(found)
                case _Compared(effect=effect) if effect and name in differing:
                    still[name] = effect
                case _:
                    undecided[name] = found.missing or found.effect
        if not first and still.keys() == differing.keys():
            return _Decided(ignored, undecided, still)
        first, differing = False, still


def _fact(seen: Sequence[_Seen], name: str, matched: tuple[str, ...]) -> IgnoredFact | _Compared:
    """The values of a fact that make no difference. Each value joins those that trials show most, if it is like them;
    otherwise what has kept the first one from joining."""
    counts: dict[str, int] = defaultdict(int)
    for one in seen:
        counts[one.values[name]] += 1
    first, *others = sorted(counts, key=lambda value: (-counts[value], value))
    same, refused, pairs, largest = {first}, list[_Compared](), 0, 0.0
    for value in others:
        compared = _compare(seen, name, same, value, matched)
        if compared.effect or compared.missing:
            refused.append(compared)
            continue
        same.add(value)
        pairs, largest = pairs + compared.pairs, max(largest, compared.difference)
    if len(same) == 1:
        return next((one for one in refused if one.effect), refused[0])
    shown = ", ".join(value or "absent" for value in sorted(same))
    reason = f"{pairs} matched pairs of trials show a difference of at most {largest:.0%} between {shown}"
    return IgnoredFact(name=name, values=tuple(sorted(same)), reason=reason)


def _compare(seen: Sequence[_Seen], name: str, same: set[str], value: str, matched: tuple[str, ...]) -> _Compared:
    """The trials with a value beside those with the others, cell by cell, among nodes with equal matched facts."""
    strata: dict[tuple[str, ...], tuple[list[Trial], list[Trial]]] = defaultdict(lambda: ([], []))
    for one in seen:
        own = one.values[name]
        if own == value or own in same:
            stratum = (one.content, *(one.values[other] for other in matched if other in one.values))
            strata[stratum][own == value].append(one.trial)
    both = [(_Side(left), _Side(right)) for left, right in strata.values() if left and right]
    counts = _pair(both)
    difference = largest_difference(counts)
    nodes = [len({trial.node for pair in both for trial in pair[side].trials}) for side in (0, 1)]
    missing = ""
    if min(nodes) < MIN_NODES:
        missing = f"too few nodes share cells with {value or 'nodes without it'} and the other values ({min(nodes)})"
    elif difference > MAX_DIFFERENCE:
        missing = (
            f"{counts.pairs} matched pairs leave a difference of {difference:.0%} open; it must be at most "
            f"{MAX_DIFFERENCE:.0%}"
        )
    return _Compared(counts.pairs, difference, _effect(both, value or "absent"), missing)


def _pair(both: Sequence[tuple[_Side, _Side]]) -> PairedCounts:
    """Pairs in the order of time, so that a bad hour harms both of a pair."""
    pairs = [
        (left.outcome is not Outcome.OK, right.outcome is not Outcome.OK)
        for sides in both
        for left, right in zip(sides[0].trials, sides[1].trials, strict=False)
    ]
    return PairedCounts(
        len(pairs), sum(left and not right for left, right in pairs), sum(right and not left for left, right in pairs)
    )


def _effect(both: Sequence[tuple[_Side, _Side]], value: str) -> str:
    """What speaks for a difference: a cell that two nodes of one side agree on and the other side does not show, or
    slower steps. Empty where nothing does."""
    ratios = []
    for left, right in both:
        here, there = right.outcomes, left.outcomes
        if here.find_agreed_failure() != there.find_agreed_failure():
            failure = here.find_agreed_failure() or there.find_agreed_failure()
            return f"a cell ends as {failure} on two nodes of one side alone ({value} against others)"
        steps = left.step_seconds, right.step_seconds
        if steps[0] and steps[1]:
            ratios.append(log(steps[1] / steps[0]))
    if ratios and max(map(abs, ratios)) > log(SLOW_RATIO):
        return f"steps of a cell take {exp(max(ratios, key=abs)):.2g} times as long with {value}"
    if ratios and abs(median(ratios)) > log(SLOWER_RATIO):
        return f"steps take {exp(median(ratios)):.2g} times as long with {value}"
    return ""
