"""Simpler rules for the class of a node, each with its own fixed plan of reruns.

A rule takes a function that runs a workload again and returns whether it failed, and the number of workloads, and
returns the class. The first workload is the one on which the failure that raised the suspicion was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pharoah_learning.node_class import MAX_RERUNS
from pharoah_protocol.vocabulary import NodeClass

RunAgain = Callable[[int], bool]


class RuleAnswer(NamedTuple):
    """The class that a rule gives a node, and what it took."""

    node_class: NodeClass
    reruns: int


def three_of_five(run_again: RunAgain, workloads: int) -> RuleAnswer:
    """Five reruns of the work that had failed; three failures of them are persistent, one is transient.

    Other workloads are not run.
    """
    del workloads
    failures = sum(run_again(0) for _ in range(5))
    return RuleAnswer(_by_share(failures, 5), 5)


def majority(run_again: RunAgain, workloads: int) -> RuleAnswer:
    """All reruns that are allowed, of all workloads in turn; most of them fail on a persistent node."""
    failures = sum(run_again(at % workloads) for at in range(MAX_RERUNS))
    return RuleAnswer(_by_share(failures, MAX_RERUNS), MAX_RERUNS)


def majority_per_workload(run_again: RunAgain, workloads: int, excused: int = 0) -> RuleAnswer:
    """The same reruns, and the majority of each workload; a node on which only some workloads mostly fail is gray.

    `excused`: so many failures in all are still healthy.
    """
    each = MAX_RERUNS // workloads
    failures = [sum(run_again(at) for _ in range(each)) for at in range(workloads)]
    return RuleAnswer(_by_workload(failures, each, excused), each * workloads)


def _by_share(failures: int, runs: int) -> NodeClass:
    if 2 * failures > runs:
        return NodeClass.PERSISTENT
    return NodeClass.TRANSIENT if failures else NodeClass.HEALTHY


def _by_workload(failures: Sequence[int], runs: int, excused: int) -> NodeClass:
    wrong = [2 * count > runs for count in failures]
    if any(wrong):
        return NodeClass.PERSISTENT if all(wrong) else NodeClass.GRAY
    return NodeClass.TRANSIENT if sum(failures) > excused else NodeClass.HEALTHY


SIMPLER_RULES: Mapping[str, Callable[[RunAgain, int], RuleAnswer]] = {
    "majority of each workload": majority_per_workload,
    "majority of each workload, one failure excused": partial(majority_per_workload, excused=1),
    "majority of all reruns": majority,
    "three of five": three_of_five,
}
