"""The registry of micro-benchmarks. Without torch: the agent and the provider read it."""

from __future__ import annotations

from collections.abc import Container

from pharoah_benchmarks.micro._benchmark import MicroBenchmark, Placement
from pharoah_protocol.registry import Registry
from pharoah_protocol.vocabulary import DeviceKind

GROUP = "pharoah.micro_benchmarks"
"""Entry points of this group are micro-benchmarks of other distributions."""

MICRO_BENCHMARKS = Registry(MicroBenchmark, "pharoah_benchmarks.micro", GROUP)
"""All micro-benchmarks by name."""


def suitable(devices: Container[DeviceKind], beside_job: bool) -> tuple[MicroBenchmark, ...]:
    """The micro-benchmarks for a node with these kinds of devices, idle or beside a job."""
    return tuple(
        benchmark
        for benchmark in MICRO_BENCHMARKS
        if benchmark.device in devices and (benchmark.placement is Placement.BESIDE_JOB or not beside_job)
    )
