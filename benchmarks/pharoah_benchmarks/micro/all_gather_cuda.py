"""All-gather between processes on GPUs (NCCL)."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import communication
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = communication("all_gather_cuda", DeviceKind.CUDA, "all_gather", "an all-gather", sent_bytes=128 << 20)
