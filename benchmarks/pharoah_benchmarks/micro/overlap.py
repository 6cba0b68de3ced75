"""Products on the CPU during an all-reduce."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import overlap
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = overlap("overlap", DeviceKind.CPU, sent_bytes=8 << 20, rows=384, count=8)
