"""Convolution on the CPU."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import convolutions
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = convolutions("convolution", DeviceKind.CPU, "float32", batch=4, channels=128)
