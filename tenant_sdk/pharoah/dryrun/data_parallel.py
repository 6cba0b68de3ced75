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

    original = torch.nn.DataParallel

    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        rows, gpus, dim = _rows((inputs, kwargs), self.dim), len(self.device_ids), self.dim
        if gpus <= 1 or rows <= 1:
            return self.module(*inputs, **kwargs)
        if (type(self).scatter, type(self).gather) != (original.scatter, original.gather):
            ledger.uncounted.add(f"how {type(self).__name__} divides a batch among GPUs")
            return self.module(*inputs, **kwargs)
        ledger.uncounted.add("copies of DataParallel between GPUs")
        part = -(-rows // gpus)  # as `torch.chunk` divides them, so that the last GPUs may have nothing
        count = -(-rows // part)
        own, named = _map(lambda one: _first_part(one, part, dim), (inputs, kwargs))
        return _map(lambda one: _gather_all(one, part, rows, count, dim), self.module(*own, **named))

    original.forward = forward  # type: ignore[method-assign]


def _first_part(tensor: Tensor, part: int, dim: int) -> Tensor:
    return tensor.narrow(dim, 0, min(part, tensor.size(dim))) if tensor.dim() > dim else tensor


def _gather_all(tensor: Tensor, part: int, rows: int, count: int, dim: int) -> Tensor:
    """What all GPUs give together, by what one of them has given: numbers become a vector."""
    if tensor.dim() <= dim:
        return torch.stack([tensor] * count)
    whole = torch.cat([tensor] * count, dim)
    return whole.narrow(dim, 0, rows) if tensor.size(dim) == part else whole


def _rows(value: Any, dim: int) -> int:
    """The size of the first tensor in nested lists, tuples and dictionaries; 0 without one."""
    if isinstance(value, Tensor):
        return value.size(dim) if value.dim() > dim else 0
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next((rows for part in parts if (rows := _rows(part, dim))), 0)


def _map(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same nested value with other tensors, as `scatter` and `gather` of torch keep it."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return type(value)((name, _map(change, part)) for name, part in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map(change, part) for part in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_map(change, part) for part in value)
    return value
