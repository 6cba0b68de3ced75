"""All-gather between processes on the CPU (gloo)."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import communication
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = communication("all_gather", DeviceKind.CPU, "all_gather", "an all-gather", sent_bytes=8 << 20)
