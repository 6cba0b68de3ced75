"""Matrix product in float16 on a GPU."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import products
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = products("gemm_float16_cuda", DeviceKind.CUDA, "float16", rows=4096)
