"""The incompatibility table: which jobs fail in which contexts, by counting, with matched controls.

One node proves nothing: its agent may be malicious. So evidence weighs by node (`opinions`, ADR 21).

* A row warns where trials of two nodes agree on the failure. What one node alone reports is a suspect (`suspects`).
* A row blocks only with failures of one kind in at least 5 blocks of campaigns and no success, on at least two nodes
  and on every node that has run it, and with at least 20 matched controls, on at least two nodes, without such a
  failure. A failure that one node alone shows among the controls does not count: its trials are no controls.
* A row is `ok` where it worked on two nodes, or on the only node of its server configuration, and at most one failed.

What one device computes (rung `one-device`) is learned from jobs that send nothing, and what is sent (rung
`collectives`) from trials that worked or waited in vain: an error of what one device computes says nothing about the
fabric (docs/adr/0029).

How far a row reaches is what varied in its evidence, and the limits of nodes that it has met (`reach`, ADR 70): beyond
that it informs at most.

A control is a trial of the same workload that differs in exactly one thing: one software setting (any context) or the
context (same settings); `known_trials` finds them. Only trials that ran on the device of their context count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pharoah_archetypes import RUNGS
from pharoah_learning.context_rule import identity
from pharoah_learning.evidence import Trial, on_their_device
from pharoah_learning.known_trials import WAITED_IN_VAIN, Controls, KnownTrial, Tokens
from pharoah_learning.limits import Limit
from pharoah_learning.opinions import MIN_NODES, NodeOutcome, NodeOutcomes, Opinion
from pharoah_learning.reach import reach_of
from pharoah_learning.release import LearnedRow
from pharoah_learning.row_remedies import Remedy, remedy_of
from pharoah_learning.slow_trials import mark_slow
from pharoah_protocol.vocabulary import Grade, Outcome, Rung, Scope, Severity

BLOCK_FAILURES = 5
BLOCK_CONTROLS = 20


class Counts(NamedTuple):
    """Failures of one kind among the trials of a row, and among their controls."""

    failures: int
    runs: int
    base_failures: int
    base_runs: int


@dataclass(frozen=True)
class Compared:
    """The trials of a row beside their controls, for one outcome."""

    outcome: Outcome
    treated: NodeOutcomes
    controls: NodeOutcomes
    """Without the trials of a node that alone shows the failure."""
    failing_blocks: int
    """In how many blocks of campaigns it failed. Failures of one block may have one passing cause."""

    @classmethod
    def from_trials(cls, outcome: Outcome, treated: Sequence[KnownTrial], controls: Sequence[KnownTrial]) -> Compared:
        outcomes = _outcomes(controls)
        alone = outcomes.with_outcome(outcome)
        failing = [trial.row for trial in treated if trial.row.outcome is outcome]
        return cls(
            outcome,
            _outcomes(treated),
            outcomes.without(alone if len(alone) < MIN_NODES else set()),
            # Trials from before blocks were recorded count each for itself.
            len({row.block for row in failing if row.block}) + sum(not row.block for row in failing),
        )

    @property
    def counts(self) -> Counts:
        return Counts(
            failures=self.treated.count(self.outcome),
            runs=self.treated.trials,
            base_failures=self.controls.count(self.outcome),
            base_runs=self.controls.trials,
        )

    def severity(self, rung: Rung) -> Severity:
        """How strongly this speaks against a job, given that two nodes agree on the failure."""
        if self.outcome in (Outcome.SLOW, *WAITED_IN_VAIN) or rung in (Rung.MAJOR, Rung.COLLECTIVES):
            return Severity.WARN
        counts = self.counts
        everywhere = all(self.treated.opinion(node, self.outcome) is Opinion.ALWAYS for node in self.treated.by_node)
        never_without = counts.base_failures == 0 and counts.base_runs >= BLOCK_CONTROLS
        enough_nodes = len(self.controls.by_node) >= MIN_NODES
        blocks = everywhere and self.failing_blocks >= BLOCK_FAILURES and never_without and enough_nodes
        return Severity.BLOCK if blocks else Severity.WARN


@dataclass(frozen=True)
class Group:
    """The trials of one server configuration or device model that have the same tokens on one rung."""

    scope: Scope
    group_id: str
    rung: Rung
    tokens: Tokens
    treated: list[KnownTrial]


def learn_incompatibilities(trials: Iterable[Trial]) -> list[LearnedRow]:
    """Rows for every rung, server configuration and device model that was tried on its own device.

    The fingerprints of the trials must be readable: `usable_trials` gives such trials.
    """
    known = [KnownTrial.from_trial(trial) for trial in mark_slow(on_their_device(trials))]
    nodes = _nodes_of_contexts(known)
    controls = Controls(known)
    found = (_row(group, controls, nodes) for scope in Scope for rung in RUNGS for group in _groups(scope, rung, known))
    return [row for row in found if row is not None]


class RowTrials(NamedTuple):
    """The trials behind a row, as learning marked them, in the order in which they were given."""

    trials: tuple[Trial, ...]
    controls: tuple[Trial, ...]


def trials_of(row: LearnedRow, trials: Iterable[Trial]) -> RowTrials:
    """The trials that a row about an archetype was learned from, and its controls; `trials` are those of learning."""
    known = [KnownTrial.from_trial(trial) for trial in mark_slow(on_their_device(trials))]
    group = next(
        (
            one
            for one in _groups(row.scope, row.rung, known)
            if (one.group_id, one.tokens) == (row.group_id, row.tokens)
        ),
        None,
    )
    if group is None:
        return RowTrials((), ())
    controls = Controls(known).find_controls(row.scope, group.treated)
    other_settings = _other_settings(group.treated, controls)
    if Compared.from_trials(row.outcome, group.treated, controls).counts.base_runs != row.base_runs:
        stricter = Compared.from_trials(row.outcome, group.treated, other_settings).counts.base_runs
        controls = other_settings if stricter == row.base_runs else controls
    return RowTrials(tuple(one.row for one in group.treated), tuple(one.row for one in controls))


def _other_settings(treated: Sequence[KnownTrial], controls: Sequence[KnownTrial]) -> list[KnownTrial]:
    """The controls that differ in a setting."""
    own = {trial.point.settings for trial in treated}
    return [control for control in controls if control.point.settings not in own]


def _outcomes(trials: Iterable[KnownTrial]) -> NodeOutcomes:
    return NodeOutcomes.from_outcomes(NodeOutcome(trial.row.node, trial.row.outcome) for trial in trials)


def _nodes_of_contexts(known: Iterable[KnownTrial]) -> dict[str, set[str]]:
    """Server configuration to the nodes that have trials in it."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for trial in known:
        nodes[trial.row.context_id].add(trial.row.node)
    return dict(nodes)


def _groups(scope: Scope, rung: Rung, known: Iterable[KnownTrial]) -> list[Group]:
    groups: dict[tuple[str, Tokens], list[KnownTrial]] = defaultdict(list)
    for trial in known:
        if rung in trial.tokens:
            groups[trial.group(scope), trial.tokens[rung]].append(trial)
    return [Group(scope, group_id, rung, tokens, treated) for (group_id, tokens), treated in sorted(groups.items())]


def _row(group: Group, index: Controls, nodes: Mapping[str, set[str]]) -> LearnedRow | None:
    """The row of a group; None where its nodes leave open what holds."""
    outcomes = _outcomes(group.treated)
    controls = index.find_controls(group.scope, group.treated)
    outcome = outcomes.find_agreed_failure()
    if outcome is None:
        return _working_row(group, outcomes, controls, nodes)
    reach = reach_of(group.scope, group.rung, group.treated, outcome)
    if reach.widest is None:
        return None
    compared = Compared.from_trials(outcome, group.treated, controls)
    severity = compared.severity(group.rung)
    if severity is not Severity.BLOCK and compared.counts.base_failures and group.rung is not Rung.MAJOR:
        # It may fail in every context: then only settings can be the contrast.
        other_settings = _other_settings(group.treated, controls)
        stricter = Compared.from_trials(outcome, group.treated, other_settings)
        if stricter.severity(group.rung) is Severity.BLOCK:
            severity, controls, compared = Severity.BLOCK, other_settings, stricter
    remedy = remedy_of(group.scope, group.treated, controls, outcome)
    if reach.widest is Severity.INFO:
        severity, remedy = Severity.INFO, Remedy.NONE
    return learn_row(group, severity, outcome, compared.counts, remedy, reach.limit)


def _working_row(
    group: Group, outcomes: NodeOutcomes, controls: Sequence[KnownTrial], nodes: Mapping[str, set[str]]
) -> LearnedRow | None:
    """A row that says it works, from the nodes on which it does; None where too few nodes say so, or where it has
    failed on two of them, though in different ways."""
    alone = group.scope is Scope.SERVER and len(nodes[group.group_id]) < MIN_NODES
    if len(outcomes.working) < (1 if alone else MIN_NODES) or len(outcomes.failing) >= MIN_NODES:
        return None
    working = outcomes.without(outcomes.failing)
    failed = sum(control.row.outcome is not Outcome.OK for control in controls)
    counts = Counts(failures=0, runs=working.trials, base_failures=failed, base_runs=len(controls))
    return learn_row(group, Severity.OK, Outcome.OK, counts, Remedy.NONE)


def learn_row(
    group: Group,
    severity: Severity,
    outcome: Outcome,
    counts: Counts,
    remedy: Remedy,
    limit: Limit | None = None,
) -> LearnedRow:
    """The row that the trials of a group support."""
    return LearnedRow(
        scope=group.scope,
        group_id=group.group_id,
        rung=group.rung,
        tokens=group.tokens,
        severity=severity,
        outcome=outcome,
        **counts._asdict(),
        remedy=int(remedy),
        title=title_of([trial.row for trial in group.treated]),
        grade=Grade.MATCHED if counts.base_runs else Grade.ASSOCIATION,
        evidence=_name([trial.row.trial_id for trial in group.treated]),
        limit=limit,
        least_size=min((trial.size for trial in group.treated if trial.row.outcome is outcome), default=0)
        if limit
        else 0,
    )


def _name(trial_ids: Sequence[str]) -> str:
    """The name of a set of trials; empty where one of them has no id. Ids are random, so that it reveals nothing."""
    return identity(trial_ids) if all(trial_ids) else ""


def title_of(trials: Iterable[Trial]) -> str:
    """Workload and settings of some trials, for people."""
    points = sorted(
        {f"{t.workload} {' '.join(f'{k}={v}' for k, v in sorted(t.settings.items()))}".strip() for t in trials}
    )
    return points[0] if len(points) == 1 else f"{points[0]} and {len(points) - 1} more"
