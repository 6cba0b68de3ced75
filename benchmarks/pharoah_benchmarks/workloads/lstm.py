"""A recurrent language model on random tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pharoah_benchmarks.workloads import Workload


class Recurrent(nn.Module):
    """An LSTM between an embedding and a projection on the vocabulary."""

    def __init__(self, vocabulary: int, width: int, depth: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.layers = nn.LSTM(width, width, depth, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(x))[0])  # type: ignore[no-any-return]


def build(batch: int = 8, length: int = 64, width: int = 64, depth: int = 2, vocabulary: int = 256) -> Workload:
    """`depth` layers over `length` tokens."""

    def loss(net: nn.Module, drawn: tuple[Tensor, ...]) -> Tensor:
        (tokens,) = drawn
        return F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return Workload(
        Recurrent(vocabulary, width, depth), lambda: (torch.randint(vocabulary, (batch, length + 1)),), loss
    )
