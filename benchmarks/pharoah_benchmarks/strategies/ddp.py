"""Data parallelism: every rank has the whole model, and gradients are averaged during the backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_benchmarks.strategies._strategy import Distributed, OptimizerChoice, Strategy

if TYPE_CHECKING:
    from torch import nn


def _distribute(model: nn.Module, optimizer: OptimizerChoice) -> Distributed:
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(model)
    return Distributed(wrapped, optimizer.make_optimizer(wrapped.parameters()))


STRATEGY = Strategy(
    name="ddp",
    help="every rank has the whole model; buckets of gradients are all-reduced during the backward pass",
    distribute=_distribute,
)
