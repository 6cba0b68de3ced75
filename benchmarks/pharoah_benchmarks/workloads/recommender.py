"""An embedding-bag recommender: sparse features, a bottom and a top MLP, one click to predict."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pharoah_benchmarks.workloads import Workload, dtype_of


class Recommender(nn.Module):
    """Embedding bags between two multilayer perceptrons."""

    def __init__(self, tables: int, items: int, width: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(items, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear((tables + 1) * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        parts = [self.bottom(dense), *(bag(sparse[:, i]) for i, bag in enumerate(self.bags))]
        return self.top(torch.cat(parts, 1)).squeeze(1)  # type: ignore[no-any-return]


def build(batch: int = 256, tables: int = 4, items: int = 20_000, width: int = 32, bag: int = 4) -> Workload:
    """`bag` items are looked up in each of the `tables`, which have `items` rows."""
    model = Recommender(tables, items, width)

    def draw() -> tuple[Tensor, ...]:
        clicks = torch.randint(2, (batch,)).to(dtype_of(model))
        return torch.randn(batch, 13).to(dtype_of(model)), torch.randint(items, (batch, tables, bag)), clicks

    def loss(net: nn.Module, drawn: tuple[Tensor, ...]) -> Tensor:
        return F.binary_cross_entropy_with_logits(net(drawn[0], drawn[1]), drawn[2])

    return Workload(model, draw, loss, answer=lambda net, drawn: net(drawn[0], drawn[1]))
