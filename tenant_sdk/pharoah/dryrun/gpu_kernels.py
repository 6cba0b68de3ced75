"""Operators that torch computes by other kernels on GPUs than on the CPU, where a dry run has its tensors.

Such operators are composite: what they call, and so what a step writes, depends on the device. Runs in the dry-run
child only, and is not undone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pharoah.dryrun.ledger import AllocationLedger, local

aten = torch.ops.aten
_registered: list[torch.library.Library] = []
"""Registrations end with the object that made them."""


def compute_as_gpus_do(ledger: AllocationLedger) -> None:
    """Compute dropout of tensors that are on a simulated GPU by one kernel, which keeps a mask of one byte for each
    number; the CPU multiplies with a mask of the dtype of the input."""
    library = torch.library.Library("aten", "IMPL")
    _registered.append(library)

    def dropout(input: Tensor, p: float, train: bool) -> Any:
        if not train or p == 0 or not input.numel():
            return input
        if p == 1:
            return input * torch.zeros((), dtype=input.dtype)
        if ledger.is_on_gpu(local(input)):
            return aten.native_dropout(input, p, train)[0]
        return input * torch.empty_like(input).bernoulli_(1 - p).div_(1 - p)

    library.impl("dropout", dropout, "AutogradCPU")
