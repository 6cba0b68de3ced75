"""Training steps of a small job on a GPU: the workload gpt, in bfloat16, because GPUs have no flash attention in
float32."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import training
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = training(
    "step_transformer_cuda",
    DeviceKind.CUDA,
    "gpt",
    {"batch": 32, "length": 512, "width": 768, "heads": 12, "depth": 6, "dtype": "bfloat16"},
)
