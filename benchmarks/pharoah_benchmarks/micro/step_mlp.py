"""Training steps of a small job on the CPU: the workload mlp."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import training
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = training("step_mlp", DeviceKind.CPU, "mlp", {"batch": 64})
