"""Hybrid sharding: shards within a group of ranks, copies of them in the other groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_benchmarks.strategies._strategy import Distributed, OptimizerChoice, Strategy, units

if TYPE_CHECKING:
    from torch import nn


def _distribute(model: nn.Module, optimizer: OptimizerChoice) -> Distributed:
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh

    from pharoah.torch_names import fully_shard

    device = next(model.parameters()).device.type
    shape = (distributed.get_world_size() // 2, 2)
    mesh = init_device_mesh(device, shape, mesh_dim_names=("replicate", "shard"))
    for unit in [*units(model), model]:
        fully_shard(unit, mesh=mesh)
    return Distributed(model, optimizer.make_optimizer(model.parameters()))


STRATEGY = Strategy(
    name="hsdp",
    help="as fsdp2 within pairs of ranks; gradients of the pairs are all-reduced",
    distribute=_distribute,
    least_ranks=4,
)
