"""Data parallelism with the states of the optimizer in shards (Rajbhandari et al., ZeRO, 2020, stage 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_benchmarks.strategies._strategy import Distributed, OptimizerChoice, Strategy

if TYPE_CHECKING:
    from torch import nn


def _distribute(model: nn.Module, optimizer: OptimizerChoice) -> Distributed:
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(model)
    return Distributed(wrapped, ZeroRedundancyOptimizer(wrapped.parameters(), optimizer.kind, **optimizer.options))


STRATEGY = Strategy(
    name="zero1",
    help="as ddp, but each rank updates a part of the parameters and broadcasts it",
    distribute=_distribute,
)
