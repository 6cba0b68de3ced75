"""What autograd saves for the backward pass and a script moves off the GPU: `save_on_cpu`, and hooks of libraries.

Such hooks run inside of operators, where torch has switched function modes off. So they would name GPUs that are not
there, and what they move would still count as being on the GPU.

Patches torch for the rest of the process; in the dry-run child only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from pharoah.dryrun.backward_code import inside
from pharoah.dryrun.ledger import AllocationLedger


class _Packed(NamedTuple):
    """What stands for a saved tensor until the backward pass."""

    was_on_gpu: bool
    content: Any
    """What the hook of the script has made of the tensor."""


def run_hooks_in(
    mode: TorchFunctionMode, ledger: AllocationLedger, put: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Run the hooks for saved tensors in a mode. `put` moves a tensor to the GPU."""
    original = saved_tensors_hooks.__init__

    @functools.wraps(original)
    def init(self: Any, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        def pack(tensor: torch.Tensor) -> _Packed:
            with inside(mode):
                return _Packed(ledger.is_on_gpu(tensor), pack_hook(tensor))

        def unpack(packed: _Packed) -> Any:
            with inside(mode):
                tensor = unpack_hook(packed.content)
                # `tensor.to(device)` with the device that the tensor had has left it in the memory of the host.
                return put(tensor) if packed.was_on_gpu and ledger.is_on_host(tensor) else tensor

        original(self, pack, unpack)

    saved_tensors_hooks.__init__ = init  # type: ignore[method-assign]
