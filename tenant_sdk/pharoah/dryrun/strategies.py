"""Patches of torch's parallel strategies where they read values, a device, or what another rank sends.

They are applied when a script joins a process group, in the dry-run child only. Private parts of torch that a release
does not have are not patched: the dry run then ends with torch's own error.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from pharoah.capture import hardware
from pharoah.dryrun.ddp_reducer import Reducer
from pharoah.dryrun.gpu_answers import constant
from pharoah.dryrun.redirect import disable_scaling
from pharoah.torch_names import replace


def patch_strategies() -> None:
    """Replace the parts of torch's parallel strategies that read values, devices or answers of other ranks."""
    from torch.distributed import fsdp
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
    from torch.nn.parallel import distributed

    distributed.dist.Reducer = Reducer  # type: ignore[attr-defined]
    distributed.dist.Logger = lambda reducer: reducer  # type: ignore[attr-defined]
    replace("register_comm_hook", lambda _: lambda reducer, state, hook: reducer.use_hook(state, hook))
    replace("register_builtin_comm_hook", lambda _: constant(None))
    replace("verify_parameter_shapes", lambda _: lambda *_, **__: None)
    _init_with(distributed.DistributedDataParallel, device_ids=None, output_device=None)
    # Without a device, FSDP uses the accelerator, which does not exist here.
    _init_with(fsdp.FullyShardedDataParallel, device_id=torch.device("cpu"))
    disable_scaling(ShardedGradScaler)  # it overrides what its base class does
    replace("chunk_with_empty", lambda _: _Chunks)
    replace("receive_stage", _next_stage_agrees)
    for method in ("record_event", "wait_event"):  # FSDP 2 calls them on any device; torch 2.6 has them on GPUs only
        if not hasattr(torch.cpu.Stream, method):
            setattr(torch.cpu.Stream, method, constant(None))
    if hardware.list_simulated_gpus():
        functional.scaled_dot_product_attention = _attend_to_own_heads(functional.scaled_dot_product_attention)
        replace("move_states_to_device", _to_the_gpu)


def _init_with(owner: Any, **fixed: Any) -> None:
    """Fix arguments of a constructor, whether they are given by place, by name or not at all."""
    original = owner.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        call = signature.bind(self, *args, **kwargs)
        call.arguments.update(fixed)
        original(*call.args, **call.kwargs)

    owner.__init__ = init


class _Chunks(Sequence[torch.Tensor]):
    """`torch.chunk` with one chunk for each rank. Chunks are made on access, since only one of a thousand is used."""

    def __init__(self, tensor: torch.Tensor, num_chunks: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, num_chunks, dim
        self._size = max(1, -(-tensor.size(dim) // num_chunks))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        start, whole = at * self._size, self._tensor.size(self._dim)
        if at and start >= whole:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, min(self._size, whole - start))


def _attend_to_own_heads(original: Any) -> Any:
    """Attention of the heads that this rank has: torch can share the kernels of GPUs among ranks, but not the CPU's."""

    @functools.wraps(original)
    def attend(query: Any, *others: Any, **options: Any) -> Any:
        from pharoah.torch_names import DTensor

        if not isinstance(query, DTensor):
            return original(query, *others, **options)
        own = [one.to_local() if isinstance(one, DTensor) else one for one in (query, *others)]
        options = {name: one.to_local() if isinstance(one, DTensor) else one for name, one in options.items()}
        return DTensor.from_local(original(*own, **options), query.device_mesh, query.placements, run_check=False)

    return attend


def _to_the_gpu(original: Any) -> Any:
    """Put the parameters that FSDP is about to shard on the GPU, as it does where there is one."""

    @functools.wraps(original)
    def move(params: Any, buffers: Any, device: Any) -> None:
        original(params, buffers, device)
        for tensor in (*params, *buffers):
            if not tensor.is_meta:
                tensor.cuda()  # it stays the same tensor, and `CudaToCpu` records it there

    return move


def _next_stage_agrees(original: Any) -> Any:
    """Derive the gradients of the next pipeline stage from what this stage sends to it."""

    def receive(self: Any, src_stage: int) -> Any:
        if src_stage != self.stage_index + 1:
            return original(self, src_stage)
        from pharoah.torch_names import StageBackwardMeta, derive_gradients

        return StageBackwardMeta(derive_gradients(self._stage_meta.outputs))

    return receive
