"""What-if: a script as it would be with a smaller micro-batch, checkpointing, shards in place of replicas, autocast.

`Change` says what; the rest patches torch for the rest of the process, in the dry-run child only. Scripts take such
changes in ways of their own, so that what is tried here says what to change, not how.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

CHANGE = "PHAROAH_DRY_RUN_CHANGE"
"""Environment of a dry run: the change to try, as `Change.to_json` writes it."""


@dataclass(frozen=True)
class Mitigation:
    """Nothing is changed unless it is said."""

    batches: int = 1
    """Micro-batches to make of each that a loader gives."""
    checkpointing: bool = False
    autocast: bool = False
    fused: bool = False
    """Updates without temporary copies of the parameters."""
    nodes: int = 1
    """Times as many nodes."""
    sharded: bool = False
    """Parameters in shards where there were replicas."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Mitigation:
        return cls(**json.loads(text))


def change_script(change: Mitigation) -> None:
    """Patch torch so that the script runs with the change."""
    if change.batches > 1:
        _split_batches(change.batches)
    if change.fused:
        _fuse_updates()
    if change.sharded:
        _shard_replicas()
    if change.checkpointing or change.autocast:
        _change_model(change)


def _split_batches(batches: int) -> None:
    from torch.utils import data

    original = data.DataLoader.__init__

    @functools.wraps(original)
    def init(self: Any, dataset: Any, batch_size: Any = 1, *args: Any, **kwargs: Any) -> None:
        sampler: Any = kwargs.get("batch_sampler")
        if hasattr(sampler, "batch_size"):
            sampler.batch_size = max(1, sampler.batch_size // batches)
            original(self, dataset, batch_size, *args, **kwargs)
        else:
            original(self, dataset, max(1, (batch_size or 1) // batches), *args, **kwargs)

    data.DataLoader.__init__ = init  # type: ignore[method-assign]


def _fuse_updates() -> None:
    import torch

    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        fuse(self)

    torch.optim.Optimizer.__init__ = init  # type: ignore[method-assign]


def fuse(optimizer: torch.optim.Optimizer) -> None:
    """Have an optimizer use its fused implementation, if it has one."""
    for group in optimizer.param_groups:
        if "fused" in group:
            group.update(fused=True, foreach=False)


def _shard_replicas() -> None:
    """What would be replicated by DistributedDataParallel is sharded, each repeated layer by itself (FSDP 2)."""
    from torch import distributed, nn, optim
    from torch.distributed.tensor import DTensor
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def shard(_: type, module: nn.Module, *__: Any, **___: Any) -> nn.Module:
        from torch.distributed.fsdp import fully_shard

        for part in (*repeated_layers(module), module):
            fully_shard(part)
        object.__setattr__(module, "module", module)  # as a wrapper has it, and without being a part of itself
        object.__setattr__(module, "no_sync", contextlib.nullcontext)
        return module

    def check(optimizer: optim.Optimizer, *_: Any) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if distributed.is_initialized() and not any(isinstance(parameter, DTensor) for parameter in parameters):
            raise RuntimeError("nothing is sharded: the optimizer was made before the model was wrapped, or no DDP is")

    nn.parallel.DistributedDataParallel.__new__ = shard  # type: ignore[method-assign,assignment]
    register_optimizer_step_pre_hook(check)


def _change_model(change: Mitigation) -> None:
    """The module that is called first is the model."""
    import torch

    def before(module: torch.nn.Module, _: Any) -> None:
        handle.remove()
        if change.checkpointing:
            checkpoint_layers(module)
        if change.autocast:
            module.forward = torch.autocast("cpu", torch.bfloat16)(module.forward)

    handle = torch.nn.modules.module.register_module_forward_pre_hook(before)


def checkpoint_layers(model: torch.nn.Module) -> None:
    """Activation checkpointing the model's own way, or around each of the layers it repeats."""
    from torch.utils.checkpoint import checkpoint

    if getattr(model, "supports_gradient_checkpointing", False):
        model.gradient_checkpointing_enable()  # type: ignore[operator]
        return
    for layer in list(repeated_layers(model)):
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)


def repeated_layers(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The outermost modules with parts of their own that stand beside others of their kind."""
    children = list(module.children())
    kinds = [type(child) for child in children]
    for child in children:
        if kinds.count(type(child)) > 1 and any(True for _ in child.children()):
            yield child
        else:
            yield from repeated_layers(child)
