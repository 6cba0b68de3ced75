"""Training steps of a small job on a GPU: the workload mlp."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import training
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = training("step_mlp_cuda", DeviceKind.CUDA, "mlp", {"batch": 8192, "width": 4096})
