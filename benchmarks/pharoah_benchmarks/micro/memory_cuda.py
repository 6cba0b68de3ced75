"""Copy within the memory of a GPU: measures its bandwidth."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import copies
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = copies("memory_cuda", DeviceKind.CUDA, DeviceKind.CUDA, copied_bytes=1 << 30)
