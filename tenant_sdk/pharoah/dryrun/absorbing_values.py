"""Results that one side alone decides: true, or anything, is true; and false, and anything, is false.

Libraries end loops so: a text is finished when it has reached its length, whatever its last token is. Runs in the
dry-run child only.
"""

from __future__ import annotations

from typing import Any

import torch

from pharoah.torch_names import FakeTensor, find_operators, unset_fake_temporarily

_LOGICAL = find_operators("aten.logical_or.default", "aten.logical_and.default")
_OR = find_operators("aten.bitwise_or.Tensor", "aten.logical_or.default")
_AND = find_operators("aten.bitwise_and.Tensor", "aten.logical_and.default", "aten.mul.Tensor")
_DTYPES = (torch.bool, torch.int64)
"""The known side is a condition, or a count of what is left."""
MAX_ELEMENTS = 1 << 16


def decide_by_one_side(func: Any, args: tuple[Any, ...]) -> torch.Tensor | None:
    """The result of an operator of two tensors of one shape, if the one with values decides it."""
    if func not in _OR and func not in _AND:
        return None
    left, right = args[0], args[1]
    known, unknown = (left, right) if isinstance(right, FakeTensor) else (right, left)
    if type(known) is not torch.Tensor or known.dtype not in _DTYPES or known.numel() > MAX_ELEMENTS:
        return None
    if not isinstance(unknown, FakeTensor) or unknown.shape != known.shape or unknown.is_floating_point():
        return None
    dtype = torch.bool if func in _LOGICAL else torch.promote_types(known.dtype, unknown.dtype)
    with unset_fake_temporarily():
        if func in _OR and known.dtype == torch.bool == unknown.dtype and bool(known.all()):
            return torch.ones(known.shape, dtype=dtype)
        if func in _AND and not bool(known.any()):
            return torch.zeros(known.shape, dtype=dtype)
    return None
