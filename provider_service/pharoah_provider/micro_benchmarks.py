"""Orders for micro-benchmarks: those of the registry that suit a node, with the repeats that each asks for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from math import inf
from typing import NamedTuple

from pharoah_benchmarks.facts import device_kinds
from pharoah_benchmarks.micro import MicroBenchmark, Need, suitable
from pharoah_learning.evidence import BenchmarkResult
from pharoah_provider.fleet import Fleet

ROUND_SECONDS = 2.0
"""How long one micro-benchmark of a round takes beside a job at most, sleep included: two bursts of work
(`pharoah_benchmarks.micro`). More repeats say little more, because rounds differ by more than the repeats of one."""


def benchmarks_of(fleet: Fleet, node: str, beside_job: bool, names: Collection[str] = ()) -> tuple[MicroBenchmark, ...]:
    """The micro-benchmarks that suit a node; those for the CPU while it is not connected.

    Without `names`: those that every round runs. Raises RegistryError for a name that is not known.
    """
    return suitable(device_kinds(fleet.server_facts(node)), beside_job, names)


async def measure(
    fleet: Fleet,
    node: str,
    beside_job: bool,
    limit_seconds: float = inf,
    *,
    only_if_idle: bool = False,
    names: Collection[str] = (),
    patience: float = 1.0,
) -> list[BenchmarkResult]:
    """Run micro-benchmarks on a node, each for its own time or `limit_seconds` if that is less.

    Without `names`: those that every round runs. One that needs a partner is left out. Beside a job, each works at most
    for its duty, and the limit is a limit of the whole order, sleep included. `only_if_idle`: the agent refuses where
    the node is in use. Raises NotReady when the node is not connected or does not answer, RegistryError for a name that
    is not known. `patience`: how many times the longest time of an idle node is waited for.
    """
    limit_seconds = min(limit_seconds, ROUND_SECONDS) if beside_job and not names else limit_seconds
    orders: dict[_Pace, list[str]] = defaultdict(list)
    for benchmark in benchmarks_of(fleet, node, beside_job, names):
        if benchmark.need is not Need.PARTNER:
            orders[_pace(benchmark, beside_job, limit_seconds)].append(benchmark.name)
    results: list[BenchmarkResult] = []
    for pace, ordered in orders.items():
        results += await fleet.probe(
            node,
            ordered,
            pace.repeats,
            beside_job,
            pace.limit_seconds,
            only_if_idle=only_if_idle,
            duty=pace.duty,
            patience=patience,
        )
    return results


class _Pace(NamedTuple):
    """What benchmarks of one order have in common."""

    repeats: int
    limit_seconds: float
    """Seconds of work."""
    duty: float


def _pace(benchmark: MicroBenchmark, beside_job: bool, limit_seconds: float) -> _Pace:
    duty = benchmark.duty if beside_job else 1.0
    return _Pace(benchmark.repeats, min(benchmark.limit_seconds, limit_seconds * duty), duty)
