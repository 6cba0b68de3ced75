"""Causal attention in bfloat16 on a GPU."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import attention
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = attention("attention_cuda", DeviceKind.CUDA, "bfloat16", batch=32, length=2048)
