"""Data parallelism without a wrapper: the script averages gradients itself, and clips their norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_benchmarks.strategies._strategy import Distributed, OptimizerChoice, Strategy

if TYPE_CHECKING:
    from torch import nn

MAX_NORM = 1.0
"""The usual bound of public training scripts."""


def _distribute(model: nn.Module, optimizer: OptimizerChoice) -> Distributed:
    import torch
    from torch import distributed

    parameters = list(model.parameters())

    def average_and_clip() -> None:
        for parameter in parameters:
            if parameter.grad is not None:
                distributed.all_reduce(parameter.grad)
                parameter.grad /= distributed.get_world_size()
        torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM)

    return Distributed(model, optimizer.make_optimizer(parameters), average_and_clip)


STRATEGY = Strategy(
    name="gradients_by_hand",
    help="every rank has the whole model; the script all-reduces each gradient after the backward pass",
    distribute=_distribute,
)
