"""Fully sharded data parallelism, the first implementation of torch (Zhao et al., PyTorch FSDP, 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_benchmarks.strategies._strategy import Distributed, OptimizerChoice, Strategy, units

if TYPE_CHECKING:
    from torch import nn


def _distribute(model: nn.Module, optimizer: OptimizerChoice) -> Distributed:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    device = next(model.parameters()).device
    policy = ModuleWrapPolicy({type(unit) for unit in units(model)})
    wrapped = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=device, use_orig_params=True)
    return Distributed(wrapped, optimizer.make_optimizer(wrapped.parameters()))


STRATEGY = Strategy(
    name="fsdp1",
    help="parameters, gradients and states in flat shards; they are gathered layer by layer",
    distribute=_distribute,
)
