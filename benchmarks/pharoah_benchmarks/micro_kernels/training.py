"""Steps of small training jobs: forward, backward and optimizer, on the workloads of campaigns."""

from __future__ import annotations

from typing import Any

import torch

from pharoah_benchmarks.micro import Check, CheckedKernel
from pharoah_benchmarks.micro_kernels.numbers import waiting
from pharoah_benchmarks.workloads import build


class TrainingStep(CheckedKernel):
    """Steps of one workload that go on from each other."""

    def __init__(self, workload: str, settings: dict[str, Any], device: str) -> None:
        torch.manual_seed(1)
        self._step = build(workload, {**settings, "device": device}).step
        self._finite = torch.ones((), dtype=torch.bool, device=device)
        self._wait = waiting(device)

    def __call__(self) -> None:
        self._finite &= self._step().isfinite()
        self._wait()

    def check(self) -> Check:
        """The loss of each step was a number."""
        return Check(bool(self._finite))
