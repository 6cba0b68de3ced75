"""`torch.nn.DataParallel` on simulated GPUs: the part of the batch that the first one has, in the dry-run child only.

Its other GPUs compute the same with other rows, in threads. Their memory is not modelled, and neither is what the first
one takes for copies of parameters and outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pharoah.dryrun.ledger import AllocationLedger


def run_on_first_gpu(ledger: AllocationLedger) -> None:
    """Replace what `DataParallel` does with a batch, for the rest of this process."""

    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        rows, count = _rows((inputs, kwargs)), len(self.device_ids)
        if count <= 1 or not rows:
            return self.module(*inputs, **kwargs)
        ledger.uncounted.add("copies of DataParallel between GPUs")
        part = -(-rows // count)  # as `torch.chunk` divides them
        own, named = _mapped(lambda tensor: tensor[:part] if tensor.dim() else tensor, (inputs, kwargs))
        return _mapped(lambda tensor: _of_all(tensor, part, rows, count), self.module(*own, **named))

    torch.nn.DataParallel.forward = forward  # type: ignore[method-assign]


def _of_all(tensor: Tensor, part: int, rows: int, count: int) -> Tensor:
    """What all GPUs give together, by what one of them has given: numbers become a vector."""
    if not tensor.dim():
        return torch.stack([tensor] * count)
    return torch.cat([tensor] * count)[: rows if len(tensor) == part else None]


def _rows(value: Any) -> int:
    """The rows of the first tensor in nested lists, tuples and dictionaries; 0 without one."""
    if isinstance(value, Tensor):
        return len(value) if value.dim() else 0
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next((rows for part in parts if (rows := _rows(part))), 0)


def _mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same nested value with other tensors, as `scatter` and `gather` of torch keep it."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return type(value)((name, _mapped(change, part)) for name, part in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(change, part) for part in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(change, part) for part in value)
    return value
