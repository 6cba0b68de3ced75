"""The registry of micro-benchmarks. Without torch: the agent and the provider read it."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable

from pharoah_benchmarks.facts import gpu_count
from pharoah_benchmarks.micro._benchmark import MicroBenchmark, Placement
from pharoah_protocol.registry import Registry
from pharoah_protocol.vocabulary import DeviceKind

GROUP = "pharoah.micro_benchmarks"
"""Entry points of this group are micro-benchmarks of other distributions."""

MICRO_BENCHMARKS = Registry(MicroBenchmark, "pharoah_benchmarks.micro", GROUP)
"""All micro-benchmarks by name."""


def is_on_gpu(benchmark: str) -> bool:
    """Whether a micro-benchmark measures GPUs; False for one that is not known here."""
    return benchmark in MICRO_BENCHMARKS.entries and MICRO_BENCHMARKS[benchmark].device is DeviceKind.CUDA


def device_count(benchmark: str, server_facts: Iterable[str]) -> int:
    """How many devices a micro-benchmark measures, one after another, on a node with these facts."""
    return gpu_count(server_facts) if is_on_gpu(benchmark) else 1


def suitable(
    devices: Container[DeviceKind], beside_job: bool, names: Collection[str] = ()
) -> tuple[MicroBenchmark, ...]:
    """The micro-benchmarks for a node with these kinds of devices, idle or beside a job.

    Without `names`: those that every round runs. With names: those of them that may run there. Raises RegistryError for
    a name that is not known.
    """
    chosen = [MICRO_BENCHMARKS[name] for name in names] if names else [one for one in MICRO_BENCHMARKS if one.selected]
    return tuple(
        benchmark
        for benchmark in chosen
        if benchmark.device in devices and (benchmark.placement is Placement.BESIDE_JOB or not beside_job)
    )
