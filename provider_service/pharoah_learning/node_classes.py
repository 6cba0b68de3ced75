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

MAX_RERUNS = 200
"""The newest reruns of a node that count: a node that was repaired is soon judged by what it does now."""
MOSTLY = 0.5
"""Work of which half of the cells fail on the other nodes fails because of itself, and says nothing of a node."""


class ClassedNode(NamedTuple):
    """A node, its class, and what it rests on."""

    node: str
    estimate: NodeClassEstimate
    failures: int
    wrong_for: tuple[str, ...]
    """Names of the workloads, with their settings, that a gray node is to be avoided for."""
    context_id: str
    """The context in which it was judged: that of its newest cell."""


def classify_nodes(trials: Iterable[Trial], returned: Mapping[str, float] | None = None) -> list[ClassedNode]:
    """The nodes on which a cell has failed that also ran elsewhere, in the order of their names.

    `returned` is when an operator has returned a node to service (unix seconds): what it did before does not count. A
    node is judged by what it did in the context of its newest cell: after an update it is another node. What it did
    before says what other nodes of that context should do.
    """
    counted_from = returned or {}
    contexts: dict[str, list[Trial]] = defaultdict(list)
    context_of: dict[str, str] = {}
    for trial in sorted(trials, key=lambda trial: trial.ran_at):
        if trial.node and trial.ran_at >= counted_from.get(trial.node, 0.0):
            contexts[trial.context_id].append(trial)
            context_of[trial.node] = trial.context_id
    found = [
        one
        for name, trials_there in contexts.items()
        for one in _classify_context(trials_there)
        if context_of[one.node] == name
    ]
    return sorted(found, key=lambda one: one.node)


class _Tally(NamedTuple):
    """How often some work ran, and failed."""

    runs: int = 0
    failures: int = 0

    def without(self, other: _Tally) -> _Tally:
        return _Tally(self.runs - other.runs, self.failures - other.failures)

    @property
    def is_reference(self) -> bool:
        """Whether it has run, and mostly did not fail."""
        return self.runs > 0 and self.failures < MOSTLY * self.runs


def _classify_context(trials: Sequence[Trial]) -> list[ClassedNode]:
    by_node: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_node[trial.node].append(trial)
    everywhere = _tallies(trials)
    found = [_classify(node, own, everywhere) for node, own in by_node.items() if any(map(_has_failed, own))]
    return [one for one in found if one is not None]


def _tallies(trials: Iterable[Trial]) -> dict[str, _Tally]:
    """By content, in the order in which they first ran."""
    found: dict[str, _Tally] = {}
    for trial in trials:
        runs, failures = found.get(trial.content, _Tally())
        found[trial.content] = _Tally(runs + 1, failures + _has_failed(trial))
    return found


def _classify(node: str, own: Sequence[Trial], everywhere: Mapping[str, _Tally]) -> ClassedNode | None:
    here = _tallies(own)
    elsewhere = {content: everywhere[content].without(tally) for content, tally in here.items()}
    newest = [trial for trial in own if elsewhere[trial.content].is_reference][-MAX_RERUNS:]
    reruns = [Rerun(trial.content, _has_failed(trial)) for trial in newest]
    failures = sum(one.failed for one in reruns)
    if not failures:
        return None
    workloads = [
        RerunWorkload(name=content, base_failures=elsewhere[content].failures, base_runs=elsewhere[content].runs)
        for content in dict.fromkeys(trial.content for trial in newest)
    ]
    estimate = classify(workloads, reruns)
    return ClassedNode(node, estimate, failures, estimate.wrong_for, own[0].context_id)


def _has_failed(trial: Trial) -> bool:
    return trial.outcome is not Outcome.OK
