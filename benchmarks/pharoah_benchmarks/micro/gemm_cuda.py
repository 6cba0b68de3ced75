"""Matrix product in float32 on a GPU."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import products
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = products("gemm_cuda", DeviceKind.CUDA, "float32", rows=4096)
