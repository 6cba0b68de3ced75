"""Patterns in the memory of the host: finds memory that forgets or mixes up bits."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import patterns
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = patterns("memory_pattern", DeviceKind.CPU, tested_bytes=32 << 20)
