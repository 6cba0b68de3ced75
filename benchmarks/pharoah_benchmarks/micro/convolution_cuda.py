"""Convolution in bfloat16 on a GPU."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import convolutions
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = convolutions("convolution_cuda", DeviceKind.CUDA, "bfloat16", batch=256, channels=256)
