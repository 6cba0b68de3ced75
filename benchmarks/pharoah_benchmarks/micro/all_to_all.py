"""All-to-all between processes on the CPU (gloo)."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import communication
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = communication("all_to_all", DeviceKind.CPU, "all_to_all", "an all-to-all exchange", sent_bytes=8 << 20)
