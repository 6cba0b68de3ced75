"""What the result of a check says about a node, beside earlier results of it and of its context."""

from __future__ import annotations

from collections.abc import Collection
from math import isnan
from statistics import median_low

from pharoah_learning.deviating_answers import NodeDigest, agreeing_nodes, deviations
from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.fleet_comparison import REPEATS, Difference
from pharoah_learning.node_validation import learn_criteria, validate_node
from pharoah_provider.domain import CheckResult, IdleCheck

DIFFERS = "its numbers differ from those of"
"""Begins the reason for which a node is wrong whose result was right by itself."""


def judge(
    newest: BenchmarkResult,
    results: Collection[BenchmarkResult],
    same_facts: Collection[str],
    propensity: float,
    now: float,
    *,
    differed: bool = False,
) -> IdleCheck:
    """What the newest result of a node says, beside earlier ones of it and of its context, `results`, which are all of
    the same micro-benchmark, oldest first. `same_facts` are the nodes with the facts of this one. `now` in unix
    seconds. `differed`: whether the numbers of the node differed from those of others before; it is healthy only where
    they could be compared again."""
    what, ratio, reason = CheckResult.UNDECIDED, None, newest.error
    if wrong := _wrong(newest, results, same_facts):
        what, reason = CheckResult.WRONG, wrong
    elif differed and newest.digest and not _agrees(newest, results, same_facts):
        reason = "too few nodes with the same facts are there to compare its numbers"
    elif newest.seconds:
        fleet = [one for one in results if one.node != newest.node and one.seconds]
        # As many repeats as most have: a node that makes few may be slow, and must not decide for all others.
        usual = median_low([len(one.seconds) for one in fleet]) if fleet else REPEATS
        own = [len(one.seconds) for one in (newest, *results) if one.node == newest.node and one.seconds]
        repeats = min(REPEATS, usual, *own)
        fleet = [one for one in fleet if len(one.seconds) >= repeats]
        criteria = learn_criteria(fleet or [newest], repeats=repeats)
        (found,) = validate_node(criteria, [newest], results).comparisons.values()
        reason = found.reason
        ratio = None if isnan(found.slowdown_ratio) else found.slowdown_ratio
        if found.difference is not Difference.UNDECIDED:
            what = CheckResult.SLOWER if found.difference is Difference.SLOWER else CheckResult.HEALTHY
    return IdleCheck(
        node=newest.node,
        benchmark=newest.benchmark,
        result=what,
        propensity=propensity,
        checked_at=now,
        slowdown_ratio=ratio,
        reason=reason,
    )


def _wrong(newest: BenchmarkResult, results: Collection[BenchmarkResult], same_facts: Collection[str]) -> str:
    """What is wrong with an answer; empty when nothing is known to be. Nodes with the same facts compute the same bits:
    a node that is always wrong in the same way differs from them."""
    if newest.correct is False:
        return "its answer was wrong"
    for one in deviations(_digests(newest, results, same_facts)):
        if one.node == newest.node:
            return f"{DIFFERS} {one.agreeing} of {one.nodes} nodes with the same facts"
    return ""


def _agrees(newest: BenchmarkResult, results: Collection[BenchmarkResult], same_facts: Collection[str]) -> bool:
    """Whether most of enough nodes with the same facts have computed the same numbers."""
    return newest.node in agreeing_nodes(_digests(newest, results, same_facts))


def _digests(
    newest: BenchmarkResult, results: Collection[BenchmarkResult], same_facts: Collection[str]
) -> list[NodeDigest]:
    return [
        NodeDigest(one.node, "", one.benchmark, one.digest)
        for one in (*results, newest)
        if one.correct and one.digest and one.node in same_facts
    ]


def evidence_of(check: IdleCheck) -> str:
    """The line of an incident; it begins with the micro-benchmark."""
    if check.result is CheckResult.WRONG:
        return f"{check.benchmark}: {check.reason}, twice in a row"
    return f"{check.benchmark}: {check.slowdown_ratio or 1.0:.3f} times as long as on healthy nodes or before"
