"""The registry of micro-benchmarks. Without torch: the agent and the provider read it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cache
from types import MappingProxyType

from pharoah_benchmarks.micro._benchmark import MicroBenchmark, Placement
from pharoah_protocol.plugins import discover
from pharoah_protocol.vocabulary import DeviceKind

GROUP = "pharoah.micro_benchmarks"
"""Entry points of this group are micro-benchmarks of other distributions."""


@cache
def micro_benchmarks() -> Mapping[str, MicroBenchmark]:
    """All micro-benchmarks by name, in the order of their names. Raises PluginError naming the entry that is wrong."""
    found = discover(__package__, "BENCHMARK", GROUP, MicroBenchmark)
    return MappingProxyType(dict(sorted(found.items())))


def suitable(devices: Container[DeviceKind], beside_job: bool) -> tuple[MicroBenchmark, ...]:
    """The micro-benchmarks for a node with these kinds of devices, idle or beside a job."""
    return tuple(
        benchmark
        for benchmark in micro_benchmarks().values()
        if benchmark.device in devices and (benchmark.placement is Placement.BESIDE_JOB or not beside_job)
    )
