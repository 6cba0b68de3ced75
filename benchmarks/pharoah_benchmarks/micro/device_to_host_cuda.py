"""Copy from a GPU to pinned memory of the host."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import copies
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = copies("device_to_host_cuda", DeviceKind.CUDA, DeviceKind.CPU, copied_bytes=256 << 20)
