"""Monitoring plans: how archetypes are best watched, learned from how steady their steps were in campaigns.

Reports that follow a rare plan would reveal which archetype runs. So an archetype gets a plan only where at least five
archetypes share it; everything else is watched by the default plan. A plan that is not the default one also needs two
nodes, and more than half of the nodes that have run the archetype: one node alone moves no plan (ADR 21).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from pharoah_archetypes import Fingerprint
from pharoah_learning.evidence import Trial, on_their_device
from pharoah_learning.opinions import MIN_NODES
from pharoah_learning.release import LearnedRow
from pharoah_protocol.monitoring_plan import PLAIN, RESTLESS, STEADY, MonitoringPlan
from pharoah_protocol.reports import RESTLESS_RATIO, deviation
from pharoah_protocol.vocabulary import Outcome

MIN_ARCHETYPES = 5
STEADY_RATIO = 0.0125
"""Typical deviation of a step from the median step: below, a slowdown counts double; above `RESTLESS_RATIO`, half, over
more steps."""
MIN_STEPS = 3


def learn_plans(rows: Sequence[LearnedRow], trials: Iterable[Trial]) -> list[LearnedRow]:
    """The rows, each with the plan of its archetype."""
    wanted = {name: _choose_agreed_plan(by_node) for name, by_node in _deviations(trials).items()}
    sharing: dict[MonitoringPlan, set[str]] = defaultdict(set)
    for name, plan in wanted.items():
        sharing[plan].add(name)
    given = {name: plan for name, plan in wanted.items() if len(sharing[plan]) >= MIN_ARCHETYPES}
    return [replace(row, plan=given.get(_archetype(row), PLAIN).pack().hex()) for row in rows]


def _choose_agreed_plan(deviations_by_node: Mapping[str, Sequence[float]]) -> MonitoringPlan:
    """The plan that more than half of the nodes ask for, and at least two; else the default one."""
    asked = Counter(plan_for(median(deviations)) for deviations in deviations_by_node.values())
    plan, nodes = asked.most_common(1)[0]
    return plan if nodes >= MIN_NODES and 2 * nodes > asked.total() else PLAIN


def _deviations(trials: Iterable[Trial]) -> dict[str, dict[str, list[float]]]:
    """Per archetype and node, how far a typical step of each trial is from its median, relative to it."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in on_their_device(trials):
        steps = trial.step_seconds[1:]
        if trial.outcome is Outcome.OK and len(steps) >= MIN_STEPS:
            found[Fingerprint.from_json(trial.fingerprint).archetype][trial.node].append(deviation(steps))
    return found


def plan_for(deviation_ratio: float) -> MonitoringPlan:
    """How to watch a job whose typical step is this far from its median step, relative to it."""
    if deviation_ratio < STEADY_RATIO:
        return STEADY
    return RESTLESS if deviation_ratio > RESTLESS_RATIO else PLAIN


def _archetype(row: LearnedRow) -> str:
    return next((token.removeprefix("archetype=") for token in row.tokens if token.startswith("archetype=")), "")
