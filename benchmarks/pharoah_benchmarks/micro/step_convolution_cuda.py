"""Training steps of a small job on a GPU: the workload convnet."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import training
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = training("step_convolution_cuda", DeviceKind.CUDA, "convnet", {"batch": 256, "channels": 128})
