"""Placeholder numbers: what a script gets where it reads a value that was not computed.

A placeholder has a plausible value. Arithmetic with it gives a placeholder again, and a comparison is a branch: the dry
run follows both ways, or it ends with a reason (`pharoah.dryrun.exploration`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

from pharoah.dryrun.exploration import UnknownValues
from pharoah.torch_names import find_builtin, register_builtin

PLAUSIBLE = 1.0
"""The value of what was not computed. A loss of about one is neither huge nor zero."""
PLAUSIBLE_INTEGER = 1
"""The same for whole numbers: a count that is not zero, and an index that most tables have."""


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


class PlaceholderInteger(int):
    """A placeholder for an unknown whole number, such as a count, an index or a token. It can be used as a size."""

    _values: UnknownValues

    def __new__(cls, values: UnknownValues, plausible: int = PLAUSIBLE_INTEGER) -> PlaceholderInteger:
        number = super().__new__(cls, plausible)
        number._values = values
        return number

    def __bool__(self) -> bool:
        return self._values.decide(int.__bool__(self), "branches on a computed value")

    __hash__ = int.__hash__


def placeholder(values: UnknownValues, result: Any) -> Any:
    """A result of arithmetic as a placeholder; what is no number stays what it is."""
    if isinstance(result, bool) or not isinstance(result, (int, float)):
        return result
    return PlaceholderInteger(values, result) if isinstance(result, int) else PlaceholderNumber(values, result)


def _combine(base: type, name: str) -> Callable[..., Any]:
    """Arithmetic: a plausible result that is unknown again."""
    plain = getattr(base, name)

    def combine(self: Any, *others: Any) -> Any:
        try:
            result = plain(self, *others)
            if result is NotImplemented and base is int:  # a whole number and one that is none
                result = getattr(float, name)(float(int.__int__(self)), *others)
        except (ArithmeticError, ValueError):
            result = base(PLAUSIBLE)
        return placeholder(self._values, result)

    return functools.wraps(plain)(combine)


def _compare(base: type, name: str) -> Callable[..., Any]:
    """A comparison: a branch, whose more plausible way is the one of the plausible value."""
    plain = getattr(base, name)

    def compare(self: Any, other: Any) -> Any:
        holds = plain(self, other)
        if holds is NotImplemented:
            return holds
        return self._values.decide(holds, "branches on a computed value")

    return functools.wraps(plain)(compare)


_ARITHMETIC = (
    "__neg__", "__pos__", "__abs__", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__",
    "__rtruediv__", "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__pow__", "__rpow__",
)  # fmt: skip
for _kind, _base in ((PlaceholderNumber, float), (PlaceholderInteger, int)):
    for _name in _ARITHMETIC:
        setattr(_kind, _name, _combine(_base, _name))
    for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
        setattr(_kind, _name, _compare(_base, _name))


def holds_placeholder(sources: Iterable[Any], depth: int = 3) -> bool:
    """Whether an argument is a placeholder, or a nested list that begins with lists or numbers that hold one."""
    for source in sources:
        if isinstance(source, (PlaceholderNumber, PlaceholderInteger)):
            return True
        if depth and isinstance(source, (list, tuple)) and holds_placeholder(source, depth - 1):
            return True
    return False


def keep_placeholders_in_math() -> None:
    """Functions of `math` return plain numbers; let those of one number keep a placeholder unknown."""
    for name in ("exp", "log", "log2", "log10", "sqrt", "tanh", "fabs"):
        _replace_in_math(name, _keep(getattr(math, name)))
    for name, answer in (("isnan", False), ("isinf", False), ("isfinite", True)):
        _replace_in_math(name, _answer(getattr(math, name), answer))


def _replace_in_math(name: str, function: Any) -> None:
    """TorchScript knows the functions of `math` by their identity, and reads the code of every other one."""
    if find_builtin and register_builtin and (known := find_builtin(getattr(math, name))):
        register_builtin(function, known)
    setattr(math, name, function)


def _keep(original: Any) -> Any:
    @functools.wraps(original)
    def function(value: Any, *rest: Any) -> Any:
        if not isinstance(value, PlaceholderNumber):
            return original(value, *rest)
        try:
            return PlaceholderNumber(value._values, original(float.__float__(value), *rest))
        except (ArithmeticError, ValueError):
            return PlaceholderNumber(value._values)

    return function


def _answer(original: Any, answer: bool) -> Any:
    @functools.wraps(original)
    def function(value: Any) -> bool:
        return answer if isinstance(value, PlaceholderNumber) else bool(original(value))

    return function
