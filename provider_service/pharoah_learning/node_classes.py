"""The class of each node, from the cells that campaigns have run there and elsewhere.

Every cell is a rerun of its workload and settings. What failed on a node counts against it as far as the same cells did
not fail on other nodes of its context. So a cell that no other node of the context has run says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pharoah_learning.evidence import Trial
from pharoah_learning.node_class import NodeClassEstimate, Rerun, RerunWorkload, classify
from pharoah_protocol.vocabulary import Outcome

MOST_RERUNS = 200
"""The newest reruns of a node that count: a node that was repaired is soon judged by what it does now."""
MOST_WORKLOADS = 16
"""Workloads that are looked at: those that the node has run most often. More would take seconds, and say little."""

MOSTLY = 0.5
"""Work of which half of the cells fail on the other nodes fails because of itself, and says nothing of a node."""


class ClassedNode(NamedTuple):
    """A node, its class, and what it rests on."""

    node: str
    estimate: NodeClassEstimate
    failures: int
    wrong_for: tuple[str, ...]
    """Names of the workloads, with their settings, that a gray node is to be avoided for."""


def classed_nodes(trials: Iterable[Trial], returned: Mapping[str, float] | None = None) -> list[ClassedNode]:
    """The nodes on which a cell has failed that also ran elsewhere, in the order of their names.

    `returned` is when an operator has returned a node to service (unix seconds): what it did before does not count.
    """
    counted_from = returned or {}
    contexts: dict[str, list[Trial]] = defaultdict(list)
    for trial in sorted(trials, key=lambda trial: trial.ran_at):
        if trial.node and trial.ran_at >= counted_from.get(trial.node, 0.0):
            contexts[trial.context_id].append(trial)
    found = [one for trials_there in contexts.values() for one in _of_context(trials_there)]
    return sorted(found, key=lambda one: one.node)


def _of_context(trials: Sequence[Trial]) -> list[ClassedNode]:
    by_node: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_node[trial.node].append(trial)
    found = [_classed(node, own, trials) for node, own in by_node.items()]
    return [one for one in found if one is not None]


def _classed(node: str, own: Sequence[Trial], all_trials: Sequence[Trial]) -> ClassedNode | None:
    elsewhere: dict[str, list[Trial]] = defaultdict(list)
    for trial in all_trials:
        if trial.node != node:
            elsewhere[trial.content].append(trial)
    failing = {content for content, there in elsewhere.items() if sum(map(_failed, there)) >= MOSTLY * len(there)}
    counts: dict[str, int] = defaultdict(int)
    for trial in own:
        counts[trial.content] += trial.content in elsewhere.keys() - failing
    chosen = sorted((one for one in counts if counts[one]), key=lambda one: -counts[one])[:MOST_WORKLOADS]
    reruns = [Rerun(trial.content, _failed(trial)) for trial in own if trial.content in chosen][-MOST_RERUNS:]
    failures = sum(one.failed for one in reruns)
    if not failures:
        return None
    workloads = [
        RerunWorkload(
            name=content,
            base_failures=sum(map(_failed, elsewhere[content])),
            base_runs=len(elsewhere[content]),
        )
        for content in chosen
    ]
    estimate = classify(workloads, reruns)
    return ClassedNode(node, estimate, failures, estimate.wrong_for)


def _failed(trial: Trial) -> bool:
    return trial.outcome is not Outcome.OK
