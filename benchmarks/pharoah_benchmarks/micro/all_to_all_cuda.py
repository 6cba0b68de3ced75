"""All-to-all between processes on GPUs (NCCL)."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import communication
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = communication(
    "all_to_all_cuda", DeviceKind.CUDA, "all_to_all", "an all-to-all exchange", sent_bytes=128 << 20
)
