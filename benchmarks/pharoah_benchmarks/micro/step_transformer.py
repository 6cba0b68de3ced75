"""Training steps of a small job on the CPU: the workload gpt."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import training
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = training("step_transformer", DeviceKind.CPU, "gpt", {"batch": 2})
