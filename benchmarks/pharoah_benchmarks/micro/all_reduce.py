"""All-reduce between processes on the CPU (gloo)."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import communication
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = communication("all_reduce", DeviceKind.CPU, "all_reduce", "an all-reduce", sent_bytes=8 << 20)
