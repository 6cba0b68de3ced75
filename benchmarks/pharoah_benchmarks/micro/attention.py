"""Causal attention on the CPU."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import attention
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = attention("attention", DeviceKind.CPU, "float32", batch=16, length=256)
