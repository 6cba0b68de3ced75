"""Placeholders for values that fake tensors do not have: a script may print and average them, but not branch on them.

A script that logs a loss can be dry-run. A branch on a loss ends the dry run, since the real step could differ.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container
from types import TracebackType
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.overrides import TorchFunctionMode

from pharoah.capture.operator_notes import storage_of

_FLOAT_READS = {torch.Tensor.item, torch.Tensor.__float__}
_FINITE_CHECKS = {
    torch.isfinite: True, torch.Tensor.isfinite: True, torch.isnan: False, torch.Tensor.isnan: False,
    torch.isinf: False, torch.Tensor.isinf: False,
}  # fmt: skip
"""Checks for finite values are not branches: a step that is worth checking passes them."""
_VALUE_READS = {
    torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__bool__, torch.Tensor.__int__,
    torch.Tensor.__float__, torch.Tensor.__index__,
}  # fmt: skip
_DEEP_COPY: Any = torch.Tensor.__deepcopy__
_INTEGER_READS = {torch.Tensor.__int__, torch.Tensor.__index__}


class DataDependentBranch(BaseException):
    """The script branches on a value that a dry run does not have. A BaseException, so that scripts do not catch it."""


class PlaceholderNumber(float):
    """A placeholder for an unknown number. It can be added and printed; a comparison ends the dry run."""

    __slots__ = ("_report",)
    _report: Callable[[str], None]

    def __new__(cls, report: Callable[[str], None]) -> PlaceholderNumber:
        number = super().__new__(cls, 1.0)
        number._report = report
        return number

    def _combined(self, _: object = None) -> PlaceholderNumber:
        return self

    def _decided(self, _: object = None) -> NoReturn:
        undecided(self._report, "branches on a computed value")

    def __round__(self, _: int | None = None) -> PlaceholderNumber:  # type: ignore[override]
        return self

    __neg__ = __pos__ = __abs__ = _combined
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _combined
    __int__ = __trunc__ = __floor__ = __ceil__ = _decided
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _combined
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _combined  # type: ignore[assignment]
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = _decided
    __hash__ = float.__hash__


class ReadablePlaceholders(TorchFunctionMode):
    """Reads of fake tensors return placeholder numbers; branches on their values end the dry run with a reason."""

    def __init__(self, report: Callable[[str], None], written: Container[int]) -> None:
        """`written` holds the storages of real tensors whose values are not known any more."""
        super().__init__()
        self._report = report
        self._written = written

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__bool__ and isinstance(args[0], FakeTensor):
            undecided(self._report, "branches on a tensor's value")
        if args and isinstance(args[0], FakeTensor) and args[0].is_floating_point():
            if func in _FLOAT_READS:
                return PlaceholderNumber(self._report)
            if func in _INTEGER_READS:
                undecided(self._report, "branches on a tensor's value")
            if func in _FINITE_CHECKS:
                with unset_fake_temporarily():
                    return torch.full(tuple(args[0].shape), _FINITE_CHECKS[func], dtype=torch.bool)
            if func is torch.Tensor.__format__ and args[0].dim() == 0:
                return format(PlaceholderNumber(self._report), *args[1:])
            if func is torch.Tensor.tolist and args[0].dim() <= 1:
                values = [PlaceholderNumber(self._report) for _ in range(args[0].numel())]
                return values if args[0].dim() else values[0]
        if func is _DEEP_COPY and not isinstance(args[0], FakeTensor):
            with unset_fake_temporarily():
                return func(*args, **(kwargs or {}))
        if func in _VALUE_READS and type(args[0]) is torch.Tensor and storage_of(args[0]) in self._written:
            undecided(self._report, "reads a tensor that holds computed values")
        return func(*args, **(kwargs or {}))


def print_unknown_sizes() -> None:
    """Let scripts log counts that depend on values, as text or as a ratio."""
    numbers: list[tuple[Any, Any]] = [(torch.SymInt, 1), (torch.SymFloat, 1.0), (torch.SymBool, True)]
    for number, stand_in in numbers:
        number.__format__ = lambda _, spec, value=stand_in: format(value, spec)
        number.__str__ = lambda _, value=stand_in: str(value)
        number.__round__ = lambda self, *_: self
    numbers[1][0].__float__ = lambda _: 1.0


def undecided(report: Callable[[str], None], what: str) -> NoReturn:
    """End the dry run because the script needs a value that was not computed. Raises DataDependentBranch."""
    reason = f"the script {what} before its first optimizer step ({caller()})"
    report(reason)
    raise DataDependentBranch(reason)


def caller() -> str:
    """The innermost frame outside of torch and this package, as `train.py:42`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return _named(frame.f_code.co_filename, frame.f_lineno)


def place(trace: TracebackType | None) -> str:
    """The innermost frame of a traceback outside of torch and this package, as `train.py:42`."""
    found = "<string>", 0
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not _is_library(path):
            found = path, trace.tb_lineno
        trace = trace.tb_next
    return _named(*found)


def _named(path: str, line: int) -> str:
    return f"{path.rpartition('/')[2]}:{line}"


def _is_library(path: str) -> bool:
    return "/torch/" in path or "/pharoah/" in path or path.startswith("<") or path.endswith("/runpy.py")
