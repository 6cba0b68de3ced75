"""Patterns in the memory of a GPU."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import patterns
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = patterns("memory_pattern_cuda", DeviceKind.CUDA, tested_bytes=1 << 30)
