"""A multilayer perceptron that learns a random linear map."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pharoah_benchmarks.workloads import Workload, dtype_of


def build(batch: int = 256, width: int = 512, depth: int = 4) -> Workload:
    """`depth` layers of `width` units."""
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 16))
    truth = torch.randn(width, 16)

    def draw() -> tuple[Tensor, Tensor]:
        with torch.no_grad():  # data, not part of the step
            x = torch.randn(batch, width)
            return x.to(dtype_of(model)), (x @ truth).to(dtype_of(model))

    return Workload(model, draw, lambda net, drawn: F.mse_loss(net(drawn[0]), drawn[1]))
