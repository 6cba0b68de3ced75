"""Fully sharded data parallelism of torch's second implementation, with a shard of each parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_benchmarks.strategies._strategy import Distributed, OptimizerChoice, Strategy, units

if TYPE_CHECKING:
    from torch import nn


def _distribute(model: nn.Module, optimizer: OptimizerChoice) -> Distributed:
    from pharoah.torch_names import fully_shard

    for unit in [*units(model), model]:
        fully_shard(unit)
    return Distributed(model, optimizer.make_optimizer(model.parameters()))


STRATEGY = Strategy(
    name="fsdp2",
    help="a shard of each parameter, gradient and state; they are gathered layer by layer",
    distribute=_distribute,
)
