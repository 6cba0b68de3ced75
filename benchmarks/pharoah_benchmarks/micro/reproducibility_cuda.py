"""The same products again and again on a GPU: finds silent corruption."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import reproducibility
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = reproducibility("reproducibility_cuda", DeviceKind.CUDA, rows=4096, count=8)
