"""Placeholders for values that fake tensors do not have: a script may print, average and compare them.

A placeholder has a plausible value. A branch on it is a question to `UnknownValues`: the dry run follows both ways, or
it ends with a reason.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode

from pharoah.capture.operator_notes import storage_of
from pharoah.dryrun.exploration import UnknownValues
from pharoah.dryrun.places import is_library

PLAUSIBLE = 1.0
"""The value of what was not computed. A loss of about one is neither huge nor zero."""
_LARGEST_LIST = 1 << 16
"""Elements of a list or an array that is made up."""
_FLOAT_READS = {torch.Tensor.item, torch.Tensor.__float__}
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
_ARRAYS: set[Any] = {torch.Tensor.numpy, torch.Tensor.__array__}
_CONSTRUCTORS = {torch.tensor, torch.as_tensor, torch.full, torch.full_like, torch.Tensor.new_tensor}
_DEEP_COPY: Any = torch.Tensor.__deepcopy__
_WATCHED: set[Any] = {
    *_FINITE_CHECKS, *_VALUE_READS, *_CONSTRUCTORS, _DEEP_COPY, torch.Tensor.__format__, torch.Tensor.__setitem__,
}  # fmt: skip


class PlaceholderNumber(float):
    """A placeholder for an unknown number. Sums with it are placeholders as well; a comparison is a branch."""

    __slots__ = ("_values",)
    _values: UnknownValues

    def __new__(cls, values: UnknownValues, plausible: float = PLAUSIBLE) -> PlaceholderNumber:
        number = super().__new__(cls, plausible)
        number._values = values
        return number

    def __round__(self, digits: int | None = None) -> PlaceholderNumber:  # type: ignore[override]
        return self

    def __bool__(self) -> bool:
        return self._values.decide(float.__bool__(self), "branches on a computed value")

    def __int__(self) -> int:
        whole = int(float.__float__(self))
        self._values.assume(f"a computed value became the whole number {whole}")
        return whole

    __trunc__ = __floor__ = __ceil__ = __int__
    __hash__ = float.__hash__


def _combined(name: str) -> Callable[..., Any]:
    """Arithmetic: a plausible result that is unknown again."""
    plain = getattr(float, name)

    def combine(self: PlaceholderNumber, *others: Any) -> Any:
        try:
            result = plain(self, *others)
        except (ArithmeticError, ValueError):
            result = PLAUSIBLE
        return PlaceholderNumber(self._values, result) if isinstance(result, (int, float)) else result

    return functools.wraps(plain)(combine)


def _compared(name: str) -> Callable[..., Any]:
    """A comparison: a branch, whose more plausible way is the one of the plausible value."""
    plain = getattr(float, name)

    def compare(self: PlaceholderNumber, other: Any) -> Any:
        holds = plain(self, other)
        if holds is NotImplemented:
            return holds
        return self._values.decide(holds, "branches on a computed value")

    return functools.wraps(plain)(compare)


for _name in (
    "__neg__", "__pos__", "__abs__", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__",
    "__rtruediv__", "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__pow__", "__rpow__",
):  # fmt: skip
    setattr(PlaceholderNumber, _name, _combined(_name))
for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
    setattr(PlaceholderNumber, _name, _compared(_name))


class ReadablePlaceholders(TorchFunctionMode):
    """Reads of fake tensors return placeholder numbers, and so do reads of real tensors to which they were written."""

    def __init__(self, values: UnknownValues, written: MutableMapping[int, torch.Tensor]) -> None:
        """`written` holds the real tensors whose values are not known any more, by their storage."""
        super().__init__()
        self._values = values
        self._written = written

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _WATCHED:
            return func(*args, **(kwargs or {}))
        first = args[0] if args else None
        if isinstance(first, FakeTensor):
            answer = self._read(func, first, args)
            if answer is not NotImplemented:
                return answer
        elif func is _DEEP_COPY:
            with unset_fake_temporarily():
                return func(*args, **(kwargs or {}))
        elif func in _VALUE_READS and type(first) is torch.Tensor and storage_of(first) in self._written:
            return self._written_value(func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        if func in _CONSTRUCTORS or func is torch.Tensor.__setitem__:
            self._note_placeholders(result if func in _CONSTRUCTORS else first, args)
        return result

    def _read(self, func: Any, tensor: FakeTensor, args: Any) -> Any:
        """What a read of a fake tensor returns; NotImplemented for everything else."""
        if func is torch.Tensor.__bool__:
            return self._values.decide(False, "branches on a tensor's value")
        if func in _ARRAYS:
            return self._array(tensor)
        if not tensor.is_floating_point():
            return NotImplemented
        if func in _FLOAT_READS:
            return PlaceholderNumber(self._values)
        if func in _INTEGER_READS:
            return int(PlaceholderNumber(self._values))
        if func in _FINITE_CHECKS:
            with unset_fake_temporarily():
                return torch.full(tuple(tensor.shape), _FINITE_CHECKS[func], dtype=torch.bool)
        if func is torch.Tensor.__format__ and tensor.dim() == 0:
            return format(PlaceholderNumber(self._values), *args[1:])
        if func is torch.Tensor.tolist and tensor.numel() <= _LARGEST_LIST:
            return self._nested(list(tensor.shape))
        return NotImplemented

    def _nested(self, shape: list[int]) -> Any:
        """Lists of placeholders in this shape; a single one for no dimension."""
        if not shape:
            return PlaceholderNumber(self._values)
        return [self._nested(shape[1:]) for _ in range(shape[0])]

    def _array(self, tensor: FakeTensor) -> Any:
        """A made-up array, for metrics that are computed outside of torch. Raises DataDependentBranch."""
        if not all(type(size) is int for size in tensor.shape) or tensor.numel() > _LARGEST_LIST:
            self._values.refuse("reads a large tensor that was not computed as an array")
        self._values.assume(f"an array of the shape {tuple(tensor.shape)} was made up")
        with unset_fake_temporarily():
            return torch.ones(tuple(tensor.shape), dtype=tensor.dtype).numpy()

    def _written_value(self, func: Any, args: Any, kwargs: Any) -> Any:
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
        if type(target) is torch.Tensor and _holds_placeholder(sources):
            self._written[storage_of(target)] = target


def _each(value: Any, change: Callable[[float], Any]) -> Any:
    """Nested lists with every number changed."""
    return [_each(item, change) for item in value] if isinstance(value, list) else change(value)


def _holds_placeholder(sources: Iterable[Any], depth: int = 3) -> bool:
    """Whether an argument is a placeholder, or a nested list that begins with lists or numbers that hold one."""
    for source in sources:
        if isinstance(source, PlaceholderNumber):
            return True
        if depth and isinstance(source, (list, tuple)) and _holds_placeholder(source, depth - 1):
            return True
    return False


def print_unknown_sizes() -> None:
    """Let scripts log counts that depend on values, as text or as a ratio."""
    numbers: list[tuple[Any, Any]] = [(torch.SymInt, 1), (torch.SymFloat, 1.0), (torch.SymBool, True)]
    for number, stand_in in numbers:
        number.__format__ = lambda _, spec, value=stand_in: format(value, spec)
        number.__str__ = lambda _, value=stand_in: str(value)
        number.__round__ = lambda self, *_: self
    numbers[1][0].__float__ = lambda _: 1.0


def decide_unknown_sizes(values: UnknownValues) -> None:
    """Let scripts compare counts that depend on values. torch's own comparisons of sizes keep their errors."""
    for kind in (torch.SymBool, torch.SymInt, torch.SymFloat):
        kind.__bool__ = _decided(kind.__bool__, values)  # type: ignore[method-assign]


def _decided(original: Any, values: UnknownValues) -> Any:
    @functools.wraps(original)
    def decide(self: Any) -> bool:
        try:
            return bool(original(self))
        except GuardOnDataDependentSymNode:
            if is_library(sys._getframe(1).f_code.co_filename):
                raise
            return values.decide(False, "branches on a count that depends on values")

    return decide


def keep_placeholders_in_math() -> None:
    """Functions of `math` return plain numbers; let those of one number keep a placeholder unknown."""
    for name in ("exp", "log", "log2", "log10", "sqrt", "tanh", "fabs"):
        setattr(math, name, _kept(getattr(math, name)))
    for name, answer in (("isnan", False), ("isinf", False), ("isfinite", True)):
        setattr(math, name, _answered(getattr(math, name), answer))


def _kept(original: Any) -> Any:
    @functools.wraps(original)
    def function(value: Any, *rest: Any) -> Any:
        if not isinstance(value, PlaceholderNumber):
            return original(value, *rest)
        try:
            return PlaceholderNumber(value._values, original(float.__float__(value), *rest))
        except (ArithmeticError, ValueError):
            return PlaceholderNumber(value._values)

    return function


def _answered(original: Any, answer: bool) -> Any:
    @functools.wraps(original)
    def function(value: Any) -> bool:
        return answer if isinstance(value, PlaceholderNumber) else bool(original(value))

    return function
