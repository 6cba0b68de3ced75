"""Matrix product that stays in cache: measures the core."""

from __future__ import annotations

from pharoah_benchmarks.micro._benchmark import CORE_FLOPS, MicroBenchmark, Noise, Placement
from pharoah_benchmarks.micro._kernel import Kernel
from pharoah_benchmarks.micro._place import Place
from pharoah_protocol.vocabulary import DeviceKind, Resource

SIZE = 640
"""Rows and columns: three float32 matrices are 5 MB, a core's share of the cache on current servers."""


def _build(_: Place) -> Kernel:
    import torch  # only the child that measures has torch

    a, b = torch.ones(SIZE, SIZE), torch.ones(SIZE, SIZE)
    out = torch.empty(SIZE, SIZE)
    return lambda: torch.mm(a, b, out=out)


BENCHMARK = MicroBenchmark(
    name="gemm",
    measures="time of a product of two square matrices; size: their rows",
    resource=Resource.COMPUTE,
    device=DeviceKind.CPU,
    dtype="float32",
    size=SIZE,
    # A repeat fits into one time slice of the scheduler, so its time depends on chance.
    noise=Noise(log_ratio_sd=0.22, source="python -m evaluation loop: validation_noise_sd_gemm"),
    placement=Placement.BESIDE_JOB,
    repeats=100,
    limit_seconds=4.0,
    duty=0.1,
    keeps_inputs=True,
    fastest_seconds=2 * SIZE**3 / CORE_FLOPS,
    build=_build,
)
