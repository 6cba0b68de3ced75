"""A cache of the result shapes of operators: the layers of a model repeat the same calls.

torch has such a cache for every kind of fake tensor, with a slower lookup. This one covers the plain case only and
leaves everything else to torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pharoah.torch_names import (
    FakeTensor,
    FakeTensorMode,
    find_operator,
    find_operators,
    in_kernel_invocation_manager,
    schema_of,
)

_VIEWS = find_operators(
    "aten.view.default", "aten.t.default", "aten.transpose.int", "aten.slice.Tensor", "aten.unsqueeze.default",
    "aten.expand.default", "aten.permute.default", "aten.detach.default", "aten.as_strided.default",
    "aten._unsafe_view.default",
)  # fmt: skip
"""Views that the kernel for the meta device makes directly."""

_PLAIN = {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
_LISTS = {list, tuple, torch.Size}

Key = tuple[Any, ...]


class _Made(NamedTuple):
    """The properties of a new tensor."""

    mode: FakeTensorMode
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class Shapes:
    """Calls operators. A call on fake tensors is not computed again when an equal call was computed before."""

    def __init__(self) -> None:
        self._made: dict[Key, _Made] = {}
        self._repeatable: dict[Any, bool] = {}

    def call(self, func: Any, args: Any, kwargs: Any, compute: Callable[..., Any]) -> Any:
        """What `compute(func, args, kwargs)` returns, or an equal fake tensor."""
        if func in _VIEWS:
            return _view(func, args, kwargs) if _tensor_key(args[0]) else compute(func, args, kwargs)
        if func not in self._repeatable:
            self._repeatable[func] = _is_repeatable(func)
        key = _key(func, args, kwargs) if self._repeatable[func] else None
        if key is None:
            return compute(func, args, kwargs)
        if known := self._made.get(key):
            return _fake(known)
        result = compute(func, args, kwargs)
        if _tensor_key(result):
            self._made[key] = _Made(result.fake_mode, result.shape, result.stride(), result.dtype, result.fake_device)
        return result


def _is_repeatable(func: Any) -> bool:
    """Whether equal arguments make an equal new tensor."""
    schema = schema_of(func)
    return (
        schema is not None
        and not schema.is_mutable
        and not any(argument.alias_info for argument in schema.arguments)
        and [str(returned.type) for returned in schema.returns] == ["Tensor"]
    )


def _key(func: Any, args: Any, kwargs: Any) -> Key | None:
    """What the result depends on. None if it depends on more than shapes and plain values, or on no fake tensor."""
    # Products with Python numbers take their dtype from the default one.
    key: list[Any] = [func, torch.get_default_dtype()]
    try:
        fakes = sum(_add(key, argument) for argument in args)
        for name, argument in kwargs.items():
            key.append(name)
            fakes += _add(key, argument)
    except _NotPlain:
        return None
    return tuple(key) if fakes else None


class _NotPlain(Exception):
    """The result depends on more than the shape of an argument."""


def _add(key: list[Any], argument: Any) -> int:
    """Append an argument to the key. Returns the number of fake tensors in it. Raises _NotPlain."""
    kind = type(argument)
    if kind in _PLAIN:
        key += (kind, argument)  # 1, 1.0 and True are equal, their products are not
        return 0
    if kind in _LISTS:
        key += (list, len(argument))
        return sum(_add(key, item) for item in argument)
    if (tensor := _tensor_key(argument)) is None:
        raise _NotPlain
    key.append(tensor)
    return 1


def _tensor_key(tensor: Any) -> Key | None:
    """The key of a strided fake tensor of known size without known values; None for every other tensor."""
    if (
        in_kernel_invocation_manager is None
        or type(tensor) is not FakeTensor
        or tensor.constant is not None
        or tensor.dtype.is_complex
    ):
        return None
    if tensor.layout is not torch.strided or not all(type(size) is int for size in tensor.shape):
        return None
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.fake_device


def _view(func: Any, args: Any, kwargs: Any) -> FakeTensor:
    tensor = args[0]
    with in_kernel_invocation_manager(tensor.fake_mode):
        shape_only = func(*args, **kwargs)
    return FakeTensor(tensor.fake_mode, shape_only, tensor.fake_device)


def _fake(made: _Made) -> FakeTensor:
    with in_kernel_invocation_manager(made.mode):
        shape_only = _empty(made.shape, made.stride, dtype=made.dtype, device=_META)
    return FakeTensor(made.mode, shape_only, made.device)


_empty = find_operator("aten.empty_strided.default")
_META = torch.device("meta")
