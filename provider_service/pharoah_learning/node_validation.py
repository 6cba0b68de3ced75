"""Validation of nodes by their micro-benchmarks: what the fleet's healthy nodes show, and which node is slower.

A node has several benchmarks, so several chances of a false alarm. Benjamini and Hochberg (1995) keep the rate of false
discoveries over the benchmarks of one node; a healthy node is then called slower with a probability of at most the
level.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.fleet_comparison import (
    LEVEL,
    PAST_RUNS,
    REPEATS,
    Basis,
    Difference,
    FleetCriterion,
    NodeComparison,
    compare_run,
    learn_criterion,
    log_slowness,
)
from pharoah_learning.models.false_discovery import q_values
from pharoah_learning.models.mantel_haenszel import Array


class BenchmarkKey(NamedTuple):
    """What is compared with its own kind only."""

    benchmark: str
    beside_job: bool


@dataclass(frozen=True)
class NodeValidation:
    """What the newest results of one node say, compared with what is healthy."""

    node: str
    comparisons: Mapping[BenchmarkKey, NodeComparison]
    """`slower` only where that also holds after the correction for several benchmarks."""
    q_values: Mapping[BenchmarkKey, float]
    """The smallest false discovery rate at which a benchmark is called slower; only for those that were compared."""

    @property
    def slower(self) -> tuple[BenchmarkKey, ...]:
        """The benchmarks in which the node is slower, the most certain one first."""
        found = [key for key, one in self.comparisons.items() if one.difference is Difference.SLOWER]
        return tuple(sorted(found, key=lambda key: (self.q_values[key], key)))

    @property
    def difference(self) -> Difference:
        """Over all benchmarks: slower in one, undecided when nothing could be compared, else none."""
        if self.slower:
            return Difference.SLOWER
        return Difference.NONE if self.q_values else Difference.UNDECIDED


def learn_criteria(
    results: Iterable[BenchmarkResult], *, repeats: int = REPEATS, past_runs: int = PAST_RUNS
) -> dict[BenchmarkKey, FleetCriterion]:
    """What healthy nodes show in each benchmark, idle and beside a job.

    `results`: those of nodes of one kind, such as one context, in any order; results that measured nothing or that have
    fewer than `repeats` repeats are not used. A benchmark without any usable result has no criterion.
    """
    runs: dict[BenchmarkKey, dict[str, list[Array]]] = defaultdict(lambda: defaultdict(list))
    for result in sorted(results, key=lambda one: (one.started_at, one.order_id)):
        if len(result.seconds) >= repeats:
            runs[_key(result)][result.node].append(_logarithms(result))
    return {key: learn_criterion(of, repeats=repeats, past_runs=past_runs) for key, of in sorted(runs.items())}


def validate_node(
    criteria: Mapping[BenchmarkKey, FleetCriterion],
    newest: Sequence[BenchmarkResult],
    past: Iterable[BenchmarkResult] = (),
    level: float = LEVEL,
) -> NodeValidation:
    """The newest results of one node, one for each benchmark, against its fleet and its own past.

    `past`: earlier results of the same node, in any order; results of other benchmarks or nodes are not used. A
    benchmark that has no criterion, and a result that measured nothing, are undecided. Raises ValueError when `newest`
    is empty, has results of several nodes, or has two results of one benchmark.
    """
    nodes = {result.node for result in newest}
    if len(nodes) != 1:
        raise ValueError(f"newest: results of one node are needed, not of {sorted(nodes) or 'none'}")
    if len({_key(result) for result in newest}) < len(newest):
        raise ValueError("newest: there are two results of one benchmark; pass the older one as past")
    node, before = nodes.pop(), defaultdict(list)
    for result in sorted(past, key=lambda one: (one.started_at, one.order_id)):
        if result.node == node and result.seconds:
            before[_key(result)].append(_logarithms(result))
    compared = {_key(result): _compare(criteria, result, before[_key(result)], level) for result in newest}
    decided = [key for key, one in compared.items() if one.difference is not Difference.UNDECIDED]
    adjusted = q_values(np.array([compared[key].p_value for key in decided], dtype=float))
    found = dict(zip(decided, adjusted.tolist(), strict=True))
    for key, q in found.items():
        if q > level:
            compared[key] = replace(compared[key], difference=Difference.NONE)
    return NodeValidation(node, compared, found)


def _compare(
    criteria: Mapping[BenchmarkKey, FleetCriterion], result: BenchmarkResult, past: Sequence[Array], level: float
) -> NodeComparison:
    criterion = criteria.get(_key(result))
    if criterion is None or not result.seconds:
        reason = result.error or "it measured nothing" if not result.seconds else "no node has been measured so far"
        return NodeComparison(Difference.UNDECIDED, Basis.NOTHING, float("nan"), float("nan"), reason)
    return compare_run(criterion, _logarithms(result), past, level)


def _key(result: BenchmarkResult) -> BenchmarkKey:
    return BenchmarkKey(result.benchmark, result.beside_job)


def _logarithms(result: BenchmarkResult) -> Array:
    """Raises ValueError that names the result, for seconds that are not positive numbers."""
    try:
        return log_slowness(result.seconds)
    except ValueError as fault:
        raise ValueError(f"benchmark {result.benchmark!r} of node {result.node!r}: {fault}") from fault
