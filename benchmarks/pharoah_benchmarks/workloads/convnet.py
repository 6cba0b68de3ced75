"""A small residual convnet that classifies random images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pharoah_benchmarks.workloads import Workload, dtype_of


class Residual(nn.Module):
    """Two convolutions with a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(hidden)))


def build(batch: int = 16, size: int = 32, channels: int = 32, depth: int = 3) -> Workload:
    """Images of `size` x `size` pixels."""
    model = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        *(Residual(channels) for _ in range(depth)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 10),
    )

    def draw() -> tuple[Tensor, Tensor]:
        return torch.randn(batch, 3, size, size).to(dtype_of(model)), torch.randint(10, (batch,))

    return Workload(model, draw, lambda net, drawn: F.cross_entropy(net(drawn[0]), drawn[1]))
