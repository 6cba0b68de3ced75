"""Bytes that one call of an operator moves, and the size of the group of a collective."""

from __future__ import annotations

from typing import Any

import torch

from pharoah.capture.operator_notes import Reader
from pharoah.torch_names import resolve_process_group


def bytes_of(tensors: list[torch.Tensor]) -> int:
    """Bytes of all tensors together."""
    return sum(map(size_of, tensors))


def size_of(tensor: torch.Tensor) -> int:
    """Bytes of a tensor; 0 when the shape depends on values, or the layout on something else."""
    size = tensor.nbytes if tensor.layout is torch.strided else 0
    return size if type(size) is int else 0


_TABLE_LOOKUPS = {"emb", "embbag", "idx"}
"""Classes of operators that read the selected rows of a table."""


def count_moved_bytes(operator: Reader, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> int:
    """Bytes that a call reads and writes. Only the selected rows of a table are read."""
    written = bytes_of(outputs)
    if operator.operator_class in _TABLE_LOOKUPS:
        return 2 * written + bytes_of(inputs[1:])
    return written + sum(map(_read, inputs))


def _read(tensor: torch.Tensor) -> int:
    size = size_of(tensor)
    # An expanded tensor has more elements than memory.
    return size if not size or tensor.is_contiguous() else min(size, int(tensor.untyped_storage().nbytes()))


def group_size(args: Any) -> int:
    """Number of ranks of a collective's group. Functional collectives name their group; others hold it."""
    from torch.distributed import ProcessGroup

    for argument in args:
        if isinstance(argument, str) and resolve_process_group is not None:
            try:
                return int(resolve_process_group(argument).size())
            except (RuntimeError, LookupError, ValueError):
                continue  # the name of a reduction
        if isinstance(argument, torch.ScriptObject):
            try:
                return ProcessGroup.unbox(argument).size()
            except RuntimeError:
                continue  # the reduction itself
    return 1
