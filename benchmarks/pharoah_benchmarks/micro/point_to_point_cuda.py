"""Messages there and back between processes on GPUs (NCCL)."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import communication
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = communication(
    "point_to_point_cuda", DeviceKind.CUDA, "point_to_point", "sending there and back", sent_bytes=128 << 20
)
