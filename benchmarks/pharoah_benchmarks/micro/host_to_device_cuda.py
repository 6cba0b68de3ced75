"""Copy from pinned memory of the host to a GPU."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import copies
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = copies("host_to_device_cuda", DeviceKind.CPU, DeviceKind.CUDA, copied_bytes=256 << 20)
