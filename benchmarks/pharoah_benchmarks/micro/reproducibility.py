"""The same products again and again on the CPU: finds silent corruption."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import reproducibility
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = reproducibility("reproducibility", DeviceKind.CPU, rows=384, count=4)
