"""Rows about one node: a job for which a gray node is wrong learns that, and no other job (ADR 56).

The class of a node comes from reruns of cells (`node_classes`). A gray node fails for certain work that runs on other
nodes of its context. A row says so on the rungs `exact` and `minor`, sealed under the name of the node as well, so that
only a job like it that is offered this node opens it. It counts what ran in the context in which the node was judged,
because it is sealed for that context: after an update a node is in another one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from pharoah_archetypes import Fingerprint, rung_tokens
from pharoah_learning.context_rule import identity
from pharoah_learning.evidence import Trial
from pharoah_learning.incompatibility import BLOCK_CONTROLS, BLOCK_FAILURES, RowTrials, title_of
from pharoah_learning.node_class import CERTAIN
from pharoah_learning.node_classes import ClassedNode, classify_nodes
from pharoah_learning.release import LearnedRow
from pharoah_protocol.tables.query import NODE_RUNGS, node_tokens
from pharoah_protocol.vocabulary import Grade, NodeClass, Outcome, RowKind, Rung, Scope, Severity


class _Remedy(IntEnum):
    """The code of `remedies.toml` that these rows give."""

    OTHER_NODE = 8


class _Subject(NamedTuple):
    """What one row is about."""

    node: str
    context_id: str
    rung: Rung
    tokens: tuple[str, ...]


class _Group(NamedTuple):
    """The trials of one row."""

    subject: _Subject
    own: list[Trial]
    controls: list[Trial]


def learn_node_rows(trials: Sequence[Trial], returned: Mapping[str, float]) -> list[LearnedRow]:
    """The rows about gray nodes. The fingerprints of the trials must be readable. `returned`: when an operator has
    returned a node to service, unix seconds; what it did before does not count."""
    rows = [_row(group) for group in _groups(trials, returned)]
    return sorted(rows, key=lambda row: (row.group_id, row.rung, row.tokens))


def trials_of_node_row(row: LearnedRow, trials: Sequence[Trial], returned: Mapping[str, float]) -> RowTrials:
    """The trials behind a row about a node, and its controls; `trials` and `returned` are those of learning."""
    for subject, own, controls in _groups(trials, returned):
        if (subject.context_id, subject.rung, subject.tokens) == (row.group_id, row.rung, row.tokens):
            return RowTrials(tuple(own), tuple(controls))
    return RowTrials((), ())


def _groups(trials: Sequence[Trial], returned: Mapping[str, float]) -> Iterator[_Group]:
    """The trials of every row about a gray node."""
    counted = [trial for trial in trials if trial.ran_at >= returned.get(trial.node, 0.0)]
    for one in classify_nodes(counted):
        if one.estimate.posterior[NodeClass.GRAY] >= CERTAIN:
            for subject, own in _by_subject(_wrong_work(one, counted)).items():
                if any(trial.outcome is not Outcome.OK for trial in own):
                    yield _Group(subject, own, _controls(own, counted))


def _wrong_work(one: ClassedNode, trials: Iterable[Trial]) -> list[Trial]:
    """What a node has run, in the context in which it was judged, of the work that it is wrong for."""
    return [
        trial
        for trial in trials
        if (trial.node, trial.context_id) == (one.node, one.context_id) and trial.content in one.wrong_for
    ]


def _by_subject(trials: Iterable[Trial]) -> dict[_Subject, list[Trial]]:
    found: dict[_Subject, list[Trial]] = defaultdict(list)
    for trial in trials:
        fingerprint = Fingerprint.from_json(trial.fingerprint)
        for rung in NODE_RUNGS:
            if tokens := rung_tokens(fingerprint, rung):
                subject = _Subject(trial.node, trial.context_id, rung, node_tokens(tokens, trial.node))
                found[subject].append(trial)
    return found


def _controls(treated: Sequence[Trial], trials: Iterable[Trial]) -> list[Trial]:
    """The same work on other nodes of the context."""
    contents, node, context = {trial.content for trial in treated}, treated[0].node, treated[0].context_id
    return [one for one in trials if one.node != node and one.context_id == context and one.content in contents]


def _row(group: _Group) -> LearnedRow:
    subject, own, controls = group
    failed = [trial for trial in own if trial.outcome is not Outcome.OK]
    outcome = Counter(trial.outcome for trial in failed).most_common(1)[0][0]
    failures, base = len(failed), sum(trial.outcome is not Outcome.OK for trial in controls)
    always = failures == len(own) >= BLOCK_FAILURES and base == 0 and len(controls) >= BLOCK_CONTROLS
    ids = [trial.trial_id for trial in own]
    return LearnedRow(
        scope=Scope.SERVER,
        group_id=subject.context_id,
        rung=subject.rung,
        tokens=subject.tokens,
        severity=Severity.BLOCK if always and subject.rung is Rung.EXACT else Severity.WARN,
        outcome=outcome,
        failures=failures,
        runs=len(own),
        base_failures=base,
        base_runs=len(controls),
        remedy=int(_Remedy.OTHER_NODE),
        title=f"{title_of(own)}, on {subject.node}",
        kind=RowKind.NODE,
        grade=Grade.MATCHED if controls else Grade.ASSOCIATION,
        evidence=identity(ids) if all(ids) else "",
    )
