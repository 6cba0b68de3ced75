"""Copy of a buffer larger than a core's share of the cache: measures memory bandwidth."""

from __future__ import annotations

from pharoah_benchmarks.micro._benchmark import CORE_BYTES_PER_SECOND, MicroBenchmark, Noise, Placement
from pharoah_benchmarks.micro._kernel import Kernel
from pharoah_benchmarks.micro._place import Place
from pharoah_protocol.vocabulary import DeviceKind, Resource

COPIED_BYTES = 64 << 20
_FLOAT32_BYTES = 4


def _build(_: Place) -> Kernel:
    import torch  # only the child that measures has torch

    source, target = torch.ones(COPIED_BYTES // _FLOAT32_BYTES), torch.zeros(COPIED_BYTES // _FLOAT32_BYTES)
    return lambda: target.copy_(source)


BENCHMARK = MicroBenchmark(
    name="memory",
    measures="time of a copy from memory to memory; size: the bytes that are copied",
    resource=Resource.MEMORY_BANDWIDTH,
    device=DeviceKind.CPU,
    dtype="float32",
    size=COPIED_BYTES,
    # A repeat takes several time slices of the scheduler, so they average out.
    noise=Noise(log_ratio_sd=0.06, source="python -m evaluation loop: validation_noise_sd_memory"),
    placement=Placement.BESIDE_JOB,
    repeats=100,
    limit_seconds=4.0,
    duty=0.1,
    keeps_inputs=True,
    fastest_seconds=2 * COPIED_BYTES / CORE_BYTES_PER_SECOND,
    build=_build,
)
