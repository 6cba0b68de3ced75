"""Patches of torch that let a script run with a mitigation: what-if runs of a dry run.

Every function patches torch for the rest of the process, so this runs in the dry-run child only.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import data

from pharoah.cost.mitigation import Mitigation


def apply_mitigation(change: Mitigation) -> None:
    """Patch torch so that the script runs with the mitigation."""
    if change.batches > 1:
        _split_batches(change.batches)
    if change.fused:
        _fuse_updates()
    if change.sharded:
        _shard_replicas()
    if change.checkpointing or change.autocast:
        _change_model(change)


class _Divided(int):
    """The size of a batch that was divided. Libraries construct a second loader from the size or the sampler of the
    script's own one, and such a size is not divided again."""


def _split_batches(batches: int) -> None:
    original = data.DataLoader.__init__

    def part(size: Any) -> Any:
        """A part of a size; anything else stays, such as None for a loader that makes no batches."""
        if isinstance(size, _Divided) or not isinstance(size, int):
            return size
        return _Divided(max(1, size // batches))

    @functools.wraps(original)
    def init(self: Any, dataset: Any, batch_size: Any = 1, *args: Any, **kwargs: Any) -> None:
        sampler: Any = kwargs.get("batch_sampler")
        if sampler is None:
            batch_size = part(batch_size)
        elif hasattr(sampler, "batch_size"):
            sampler.batch_size = part(sampler.batch_size)
        original(self, dataset, batch_size, *args, **kwargs)

    data.DataLoader.__init__ = init  # type: ignore[method-assign]


def _fuse_updates() -> None:
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        fuse(self)

    torch.optim.Optimizer.__init__ = init  # type: ignore[method-assign]


def fuse(optimizer: torch.optim.Optimizer) -> None:
    """Switch an optimizer to its fused implementation, if it has one."""
    for group in optimizer.param_groups:
        if "fused" in group:
            group.update(fused=True, foreach=False)


def _shard_replicas() -> None:
    """Have FSDP 2 shard each repeated layer of what DistributedDataParallel would replicate."""
    from torch import distributed, nn, optim
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    from pharoah.torch_names import DTensor

    def shard(_: type, module: nn.Module, *__: Any, **___: Any) -> nn.Module:
        from pharoah.torch_names import fully_shard

        for part in (*find_repeated_layers(module), module):
            fully_shard(part)
        object.__setattr__(
            module, "module", module
        )  # scripts read `model.module`; a registered submodule would be a cycle
        object.__setattr__(module, "no_sync", contextlib.nullcontext)
        return module

    def check(optimizer: optim.Optimizer, *_: Any) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if distributed.is_initialized() and not any(isinstance(parameter, DTensor) for parameter in parameters):
            raise RuntimeError("nothing is sharded: the optimizer was made before the model was wrapped, or no DDP is")

    nn.parallel.DistributedDataParallel.__new__ = shard  # type: ignore[method-assign,assignment]
    register_optimizer_step_pre_hook(check)


def _change_model(change: Mitigation) -> None:
    """Change the model: the module that the script calls first among those that may be trained."""

    def before(module: torch.nn.Module, _: Any) -> None:
        if not _may_be_trained(module) or (change.checkpointing and not torch.is_grad_enabled()):
            return  # a transformation of data, a frozen encoder, or a call from which no backward pass follows
        handle.remove()
        if change.checkpointing:
            checkpoint_layers(module)
        if change.autocast:
            module.forward = torch.autocast("cpu", torch.bfloat16)(module.forward)

    handle = torch.nn.modules.module.register_module_forward_pre_hook(before)


def _may_be_trained(module: torch.nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in torch.nn.Module.parameters(module))


def checkpoint_layers(model: torch.nn.Module) -> None:
    """Switch on the model's own activation checkpointing, or wrap each of its repeated layers."""
    from torch.utils.checkpoint import checkpoint

    if getattr(model, "supports_gradient_checkpointing", False):
        model.gradient_checkpointing_enable()  # type: ignore[operator]
        return
    for layer in list(find_repeated_layers(model)):
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)


def find_repeated_layers(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield the outermost modules that have submodules and a sibling of the same class."""
    children = list(module.children())
    kinds = [type(child) for child in children]
    for child in children:
        if kinds.count(type(child)) > 1 and any(True for _ in child.children()):
            yield child
        else:
            yield from find_repeated_layers(child)
