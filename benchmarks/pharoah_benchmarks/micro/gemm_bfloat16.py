"""Matrix product in bfloat16 on the CPU: measures the units of a core for short numbers."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import products
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = products("gemm_bfloat16", DeviceKind.CPU, "bfloat16", rows=640)
