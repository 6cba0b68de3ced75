"""Orders for micro-benchmarks: those of the registry that suit a node, with the repeats that each asks for."""

from __future__ import annotations

from collections import defaultdict
from math import inf

from pharoah_benchmarks.facts import device_kinds
from pharoah_benchmarks.micro import MicroBenchmark, suitable
from pharoah_learning.evidence import BenchmarkResult
from pharoah_provider.fleet import Fleet


def benchmarks_of(fleet: Fleet, node: str, beside_job: bool) -> tuple[MicroBenchmark, ...]:
    """The micro-benchmarks that suit a node; those for the CPU while it is not connected."""
    facts = next((known.server_facts for known in fleet.connected() if known.node == node), ())
    return suitable(device_kinds(facts), beside_job)


async def measure(
    fleet: Fleet, node: str, beside_job: bool, limit_seconds: float = inf, *, only_if_idle: bool = False
) -> list[BenchmarkResult]:
    """Run all micro-benchmarks that suit a node, each for its own time or `limit_seconds` if that is less.

    `only_if_idle`: the agent refuses where the node is in use. Raises NotReady when the node is not connected or does
    not answer.
    """
    orders: dict[tuple[int, float], list[str]] = defaultdict(list)
    for benchmark in benchmarks_of(fleet, node, beside_job):
        orders[benchmark.repeats, min(benchmark.limit_seconds, limit_seconds)].append(benchmark.name)
    results: list[BenchmarkResult] = []
    for (repeats, limit), names in orders.items():
        results += await fleet.probe(node, names, repeats, beside_job, limit, only_if_idle=only_if_idle)
    return results
