"""Products on a GPU during an all-reduce."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import overlap
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = overlap("overlap_cuda", DeviceKind.CUDA, sent_bytes=128 << 20, rows=4096, count=16)
