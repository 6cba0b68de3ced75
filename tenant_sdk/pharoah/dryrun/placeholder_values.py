"""Reads of tensors whose values a dry run does not have: a script may print, average and compare them.

Runs in the dry-run child only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, MutableMapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pharoah.capture.causal_masks import KNOWN_CORNER
from pharoah.capture.operator_notes import storage_of
from pharoah.dryrun.exploration import UnknownValues
from pharoah.dryrun.mask_corners import find_truth
from pharoah.dryrun.placeholder_numbers import (
    PLAUSIBLE_INTEGER,
    PlaceholderInteger,
    PlaceholderNumber,
    holds_placeholder,
)
from pharoah.dryrun.steps_by_hand import StepsByHand
from pharoah.torch_names import FakeTensor, tensor_base, unset_fake_temporarily

_MAX_LIST = 1 << 16
"""Elements of a list that is made up."""
_MAX_ARRAY = 1 << 24
"""Elements of an array that is made up: a grid of pictures has a few million."""
_MAX_MASK = 1 << 16
"""Elements of a mask that is made up with memory of its own. A larger one has the memory of one element."""
_TRUTH_READS = {torch.Tensor.item, torch.Tensor.__bool__}
_FLOAT_READS = {torch.Tensor.item, torch.Tensor.__float__}
_SPLITS: set[Any] = {torch.split, torch.Tensor.split, torch.Tensor.split_with_sizes, torch.split_with_sizes}
_INTEGER_READS = {torch.Tensor.__int__, torch.Tensor.__index__}
_FINITE_CHECKS = {
    torch.isfinite: True, torch.Tensor.isfinite: True, torch.isnan: False, torch.Tensor.isnan: False,
    torch.isinf: False, torch.Tensor.isinf: False,
}  # fmt: skip
"""Checks for finite values are not branches: a step that is worth checking passes them."""
_VALUE_READS: set[Any] = {
    torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__bool__,
    torch.Tensor.__int__, torch.Tensor.__float__, torch.Tensor.__index__,
}  # fmt: skip
_COMPARISONS: set[Any] = {torch.equal, torch.Tensor.equal, torch.allclose, torch.Tensor.allclose}
_ARRAYS: set[Any] = {torch.Tensor.numpy, torch.Tensor.__array__}
_CONSTRUCTORS = {torch.tensor, torch.as_tensor, torch.full, torch.full_like, torch.Tensor.new_tensor}
_DEEP_COPY: Any = torch.Tensor.__deepcopy__
_PROPERTIES = vars(tensor_base) if tensor_base is not None else {}
_GRADIENT: Any = _PROPERTIES["grad"].__get__ if "grad" in _PROPERTIES else None
_SET_DATA: Any = _PROPERTIES["data"].__set__ if "data" in _PROPERTIES else None
_CHANGES: set[Any] = {
    torch.Tensor.__setitem__, torch.Tensor.__iand__, torch.Tensor.__ior__, torch.Tensor.masked_fill_,
    torch.Tensor.logical_and_, torch.Tensor.logical_or_, torch.Tensor.logical_not_,
    torch.Tensor.bitwise_and_, torch.Tensor.bitwise_or_, torch.Tensor.bitwise_not_,
}  # fmt: skip
"""Functions that change a mask in place."""
_WATCHED: set[Any] = {
    _GRADIENT,
    _SET_DATA,
    *_FINITE_CHECKS, *_VALUE_READS, *_CONSTRUCTORS, *_SPLITS, *_COMPARISONS, _DEEP_COPY, torch.Tensor.__format__,
    *_CHANGES,
}  # fmt: skip


class ReadablePlaceholders(TorchFunctionMode):
    """Reads of fake tensors return placeholder numbers, and so do reads of real tensors to which they were written."""

    def __init__(
        self,
        values: UnknownValues,
        written: MutableMapping[int, torch.Tensor],
        by_hand: StepsByHand,
    ) -> None:
        """`written` holds the real tensors whose values are not known any more, by their storage. `by_hand` notices
        gradients that are read and parameters that are replaced."""
        super().__init__()
        self._values = values
        self._written = written
        self._by_hand = by_hand

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _WATCHED:
            return func(*args, **(kwargs or {}))
        if func == _GRADIENT:
            gradient = func(*args)
            if gradient is not None:
                self._by_hand.read_gradient(args[0])
            return gradient
        if func == _SET_DATA:
            return func(args[0], self._new_data(*args))
        if func in _COMPARISONS and any(isinstance(argument, FakeTensor) for argument in args):
            return self._values.decide(True, "branches on a comparison of tensors")
        first: Any = args[0] if args else None
        if func in _CHANGES and _has_one_element_for_all(first):  # torch refuses to write to it
            args = (torch.empty(tuple(first.shape), dtype=torch.bool), *args[1:])
        if isinstance(first, FakeTensor):
            answer = self._read(func, first, args)
            if answer is not NotImplemented:
                return answer
        elif func is _DEEP_COPY:
            with unset_fake_temporarily():
                return func(*args, **(kwargs or {}))
        elif func in _VALUE_READS and type(first) is torch.Tensor and storage_of(first) in self._written:
            return self._write_value(func, args, kwargs or {})
        if func in _SPLITS:
            args = _with_fitting_sizes(*args, dim=(kwargs or {}).get("dim", 0))
        result = func(*args, **(kwargs or {}))
        if func in _CONSTRUCTORS or func is torch.Tensor.__setitem__:
            self._note_placeholders(result if func in _CONSTRUCTORS else first, args)
        return result

    def _new_data(self, tensor: torch.Tensor, data: Any) -> Any:
        """The tensor that becomes the data of another one: a fake one for a fake tensor."""
        self._by_hand.wrote([tensor])
        if isinstance(tensor, FakeTensor) and type(data) is torch.Tensor:
            return torch.empty_strided(data.shape, data.stride(), dtype=data.dtype)
        return data

    def _read(self, func: Any, tensor: FakeTensor, args: Any) -> Any:
        """What a read of a fake tensor returns; NotImplemented for everything else."""
        if func in _TRUTH_READS and (known := find_truth(tensor)) is not None:
            return known
        if func is torch.Tensor.__bool__:
            return self._values.decide(False, "branches on a tensor's value")
        if func in _ARRAYS:
            return self._array(tensor)
        if tensor.is_complex():
            return NotImplemented
        if func in _FINITE_CHECKS:
            if getattr(tensor, KNOWN_CORNER, None) is not None:
                return NotImplemented  # a mask that is written with infinities: its values are followed
            return self._mask(tensor, _FINITE_CHECKS[func])
        if func is torch.Tensor.tolist and tensor.numel() <= _MAX_LIST:
            return self._nest(list(tensor.shape), tensor.dtype)
        if tensor.numel() != 1:
            return NotImplemented  # torch raises
        number = self._number(tensor.dtype)
        if func is torch.Tensor.item:
            return number
        if func is torch.Tensor.__float__:
            return number if isinstance(number, float) else float(number)
        if func in _INTEGER_READS:
            if isinstance(number, int):
                self._values.assume(f"a computed value became the whole number {int.__int__(number)}")
            return int(number) if isinstance(number, float) else int.__int__(number)
        if func is torch.Tensor.__format__ and tensor.dim() == 0:
            return format(number, *args[1:])
        return NotImplemented

    def _mask(self, tensor: FakeTensor, value: bool) -> torch.Tensor:
        """A real mask with one value, in the shape of a tensor. A large one has the memory of one element only."""
        if tensor.numel() > _MAX_MASK:
            torch.full_like(tensor, value, dtype=torch.bool)  # recorded, since the job allocates it
            with unset_fake_temporarily():
                return torch.full((), value, dtype=torch.bool).expand(tuple(tensor.shape))
        with unset_fake_temporarily():
            return torch.full(tuple(tensor.shape), value, dtype=torch.bool)

    def _number(self, dtype: torch.dtype) -> PlaceholderNumber | PlaceholderInteger:
        """A placeholder for one element."""
        if dtype.is_floating_point:
            return PlaceholderNumber(self._values)
        return PlaceholderInteger(self._values, 0 if dtype is torch.bool else PLAUSIBLE_INTEGER)

    def _nest(self, shape: list[int], dtype: torch.dtype) -> Any:
        """Lists of placeholders in this shape; a single one for no dimension."""
        if not shape:
            return self._number(dtype)
        return [self._nest(shape[1:], dtype) for _ in range(shape[0])]

    def _array(self, tensor: FakeTensor) -> Any:
        """A made-up array, for metrics that are computed outside of torch. Raises DataDependentBranch."""
        if not all(type(size) is int for size in tensor.shape) or tensor.numel() > _MAX_ARRAY:
            self._values.refuse("reads a large tensor that was not computed as an array")
        self._values.assume(f"an array of the shape {tuple(tensor.shape)} was made up")
        with unset_fake_temporarily():
            return torch.ones(tuple(tensor.shape), dtype=tensor.dtype).numpy()

    def _write_value(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A read of a real tensor that holds placeholders: its content is plausible, and unknown."""
        with unset_fake_temporarily():
            value = func(*args, **kwargs)
        if func is torch.Tensor.__bool__:
            return self._values.decide(bool(value), "branches on a tensor's value")
        if func in _FLOAT_READS and isinstance(value, float):
            return PlaceholderNumber(self._values, value)
        if func is torch.Tensor.tolist and args[0].is_floating_point():
            return _each(value, functools.partial(PlaceholderNumber, self._values))
        self._values.assume("a tensor that holds computed values was read")
        return value

    def _note_placeholders(self, target: Any, sources: Any) -> None:
        """Record a real tensor to which placeholders were written."""
        if type(target) is torch.Tensor and holds_placeholder(sources):
            self._written[storage_of(target)] = target


def _has_one_element_for_all(tensor: Any) -> bool:
    """Whether this is a large mask that was made up."""
    is_mask = type(tensor) is torch.Tensor and tensor.dtype is torch.bool and tensor.numel() > _MAX_MASK
    return is_mask and not any(tensor.stride())


def _each(value: Any, change: Callable[[float], Any]) -> Any:
    """Nested lists with every number changed."""
    return [_each(item, change) for item in value] if isinstance(value, list) else change(value)


def _with_fitting_sizes(tensor: Any, sizes: Any = None, *rest: Any, dim: int = 0) -> tuple[Any, ...]:
    """The arguments of a split. Sizes that were made up are spread evenly, so that their sum is the tensor's size."""
    given = () if sizes is None else (sizes,)
    if isinstance(sizes, (list, tuple)) and holds_placeholder(sizes):
        each, more = divmod(tensor.shape[rest[0] if rest else dim], len(sizes))
        given = ([each + (at < more) for at in range(len(sizes))],)
    return (tensor, *given, *rest)
