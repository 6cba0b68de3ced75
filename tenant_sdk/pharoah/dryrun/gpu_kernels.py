"""Operators that torch computes by other kernels on GPUs than on the CPU, where a dry run has its tensors.

Such operators are composite: what they call, and so what a step writes, depends on the device. Runs in the dry-run
child only, and is not undone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pharoah.dryrun.attention_kernels import attend_as_gpus_do
from pharoah.dryrun.gpu_autocast import autocast_as_gpus_do
from pharoah.dryrun.ledger import AllocationLedger, local
from pharoah.torch_names import find_operator

_registered: list[torch.library.Library] = []
"""Registrations end with the object that made them."""


def compute_as_gpus_do(gpu: str, ledger: AllocationLedger) -> None:
    """Attention, autocast and dropout as on a GPU of this model, for tensors that the ledger has there."""
    attend_as_gpus_do(gpu, ledger)
    autocast_as_gpus_do()
    _drop_out_as_gpus_do(ledger)


def _drop_out_as_gpus_do(ledger: AllocationLedger) -> None:
    """GPUs have one kernel, which keeps a byte for each number; the CPU multiplies with a mask of the input's dtype."""
    library, native = torch.library.Library("aten", "IMPL"), find_operator("aten.native_dropout")
    _registered.append(library)

    def dropout(input: Tensor, p: float, train: bool) -> Any:
        if not train or p == 0 or not input.numel():
            return input
        if p == 1:
            return input * torch.zeros((), dtype=input.dtype)
        if ledger.is_on_gpu(local(input)):
            return native(input, p, train)[0]
        return input * torch.empty_like(input).bernoulli_(1 - p).div_(1 - p)

    library.impl("dropout", dropout, "AutogradCPU")
