"""The first corner of masks that a script computes from constants: fake tensors have no values, and whether attention
is causal is a question of values.

A corner is followed through the operators that scripts make masks with. Each is applied to the corners of its
arguments, since the corner of an elementwise result follows from the corners of its operands. A value that is not known
(a padding mask of a batch) selects nothing. Runs in the dry-run child only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pharoah.capture.causal_masks import CORNER, KNOWN_CORNER, first_corner, is_square
from pharoah.torch_names import (
    FakeTensor,
    base_of,
    find_operators,
    find_overloads,
    key_by_operator,
    unset_fake_temporarily,
)

_Corner = torch.Tensor | None


def follow(func: Any, args: Any, result: Any) -> None:
    """Give a fake result its corner, when that follows from the corners of the arguments."""
    if type(result) is not FakeTensor:
        return
    changed = bool(args) and result is args[0]
    if changed and (base := base_of(result)) is not None:
        setattr(base, KNOWN_CORNER, None)
    rule = _RULES.get(func)
    if func in _REDUCTIONS and _is_known(args[0]):
        with unset_fake_temporarily():
            setattr(result, KNOWN_CORNER, _result_of(_reduce, func, args, result))
    elif rule is not None and _has_matrices(result) and (func in _CONSTANTS or any(map(_is_known, args))):
        with unset_fake_temporarily():
            setattr(result, KNOWN_CORNER, _result_of(rule, func, args, result))
    elif changed:
        setattr(result, KNOWN_CORNER, None)


def _result_of(rule: _Rule, func: Any, args: Any, result: torch.Tensor) -> _Corner:
    """The corner of a result; None where it is not known, also because it cannot be computed from corners alone."""
    try:
        return rule(func, args, result)
    except Exception:  # noqa: BLE001 - the script's own operator has run, and must not fail for this
        return None


def find_truth(tensor: torch.Tensor) -> bool | None:
    """Whether a single value that was computed from corners is true; None where it is not known."""
    known: _Corner = getattr(tensor, KNOWN_CORNER, None)
    return bool(known) if known is not None and tensor.dim() == 0 else None


def _has_matrices(tensor: torch.Tensor) -> bool:
    return tensor.dim() >= 2 and all(type(size) is int and size > 1 for size in tensor.shape[-2:])


def _is_known(argument: Any) -> bool:
    if not isinstance(argument, torch.Tensor) or argument.requires_grad:
        return False
    return type(argument) is torch.Tensor or getattr(argument, KNOWN_CORNER, None) is not None


def _corner(argument: Any) -> torch.Tensor:
    """The corner of a tensor that has matrices. Raises LookupError."""
    known: _Corner = getattr(argument, KNOWN_CORNER, None)
    if known is None and type(argument) is torch.Tensor and argument.dim() >= 2 and argument.numel():
        known = first_corner(argument)
    if known is None:
        raise LookupError("the corner is not known")
    return known


def _operand(argument: Any) -> Any:
    """The corner of a tensor, or a value that holds for all elements. Raises LookupError."""
    if not isinstance(argument, torch.Tensor):
        return argument
    if type(argument) is torch.Tensor and argument.dim() < 2:
        return argument[:CORNER] if argument.dim() else argument
    if isinstance(argument, FakeTensor) and argument.constant is not None and argument.dim() == 0:
        return argument.constant
    return _corner(argument)


def _fill(value: Any, result: torch.Tensor) -> torch.Tensor:
    if not is_square(result):
        raise LookupError("the corner is not known")
    rows, columns = (min(CORNER, size) for size in result.shape[-2:])
    return torch.full((rows, columns), value, dtype=result.dtype)


def _elementwise(func: Any, args: Any, result: torch.Tensor) -> torch.Tensor:
    rows, columns = (min(CORNER, size) for size in result.shape[-2:])
    operands = [_operand(argument) for argument in args]
    corner: torch.Tensor = func(operands[0].clone(), *operands[1:])  # some change their first argument
    return corner.broadcast_to((rows, columns)).to(result.dtype)


def _join(func: Any, args: Any, result: torch.Tensor) -> torch.Tensor:
    """A conjunction or disjunction of two masks; one that is not known changes nothing."""
    known = [argument for argument in args if _is_known(argument)]
    return _elementwise(func, args, result) if len(known) == len(args) else _same(func, known, result)


def _mask(func: Any, args: Any, result: torch.Tensor) -> torch.Tensor:
    """A fill under a mask; a mask that is not known selects nothing."""
    known = _is_known(args[1])
    return _elementwise(func, args, result) if known else _same(func, args, result)


def _same(_: Any, args: Any, result: torch.Tensor) -> torch.Tensor:
    """The values of the first argument, in another dtype or under other leading dimensions."""
    rows, columns = (min(CORNER, size) for size in result.shape[-2:])
    corner = _corner(args[0])
    if corner.shape not in ((rows, columns), (1, columns), (rows, 1), (1, 1)):
        raise LookupError("the corner is not known")
    return corner.broadcast_to((rows, columns)).to(result.dtype)


def _reshape(func: Any, args: Any, result: torch.Tensor) -> torch.Tensor:
    """A view that changes the leading dimensions only."""
    if args[0].dim() < 2 or args[0].shape[-2:] != result.shape[-2:]:
        raise LookupError("the corner is not known")
    return _same(func, args, result)


def _slice(func: Any, args: Any, result: torch.Tensor) -> torch.Tensor:
    """A slice that begins with the first row or column."""
    dim, start, step = _at(args, 1, 0), _at(args, 2, 0), _at(args, 4, 1)
    if dim % args[0].dim() >= args[0].dim() - 2:
        if start not in (0, None) or step != 1:
            raise LookupError("the corner is not known")
        rows, columns = (min(CORNER, size) for size in result.shape[-2:])
        return _corner(args[0])[:rows, :columns]
    return _same(func, args, result)


def _at(args: Any, at: int, default: Any) -> Any:
    return args[at] if at < len(args) else default


def _triangle(func: Any, args: Any, result: torch.Tensor) -> torch.Tensor:
    return func(_corner(args[0]).clone(), *args[1:]).to(result.dtype)  # type: ignore[no-any-return]


def _reduce(func: Any, args: Any, _: torch.Tensor) -> torch.Tensor:
    """One value for a whole mask: that of its corner, unless the mask has all its values."""
    mask: torch.Tensor = args[0] if type(args[0]) is torch.Tensor else _corner(args[0])
    if mask.numel() and not any(mask.stride()):
        mask = mask.as_strided((), ())  # all elements are the same one, and there may be billions of them
    return func(mask)  # type: ignore[no-any-return]


def _copy(func: Any, args: Any, result: torch.Tensor) -> torch.Tensor:
    return _same(func, args[1:], result)


_Rule = Callable[[Any, Any, torch.Tensor], torch.Tensor]


_CONSTANTS: dict[Any, _Rule] = key_by_operator(
    {
        "aten.ones.default": lambda _, __, result: _fill(1, result),
        "aten.ones_like.default": lambda _, __, result: _fill(1, result),
        "aten.new_ones.default": lambda _, __, result: _fill(1, result),
        "aten.zeros.default": lambda _, __, result: _fill(0, result),
        "aten.zeros_like.default": lambda _, __, result: _fill(0, result),
        "aten.new_zeros.default": lambda _, __, result: _fill(0, result),
        "aten.full.default": lambda _, args, result: _fill(args[1], result),
        "aten.full_like.default": lambda _, args, result: _fill(args[1], result),
        "aten.new_full.default": lambda _, args, result: _fill(args[2], result),
    }
)
"""Operators that fill a new tensor with one value."""
_REDUCTIONS = find_operators("aten.all.default", "aten.any.default")
"""Torch compares masks with a triangle itself, to find out whether they are causal."""
_BY_NAMES: tuple[tuple[str, _Rule], ...] = (
    ("tril triu tril_ triu_", _triangle),
    ("logical_and bitwise_and logical_or bitwise_or", _join),
    ("masked_fill masked_fill_", _mask),
    (
        "add add_ sub sub_ rsub mul mul_ neg log fill_ abs isinf isnan where logical_not bitwise_not eq ne lt le gt ge",
        _elementwise,
    ),
    ("_to_copy clone detach alias expand repeat", _same),
    ("view _unsafe_view unsqueeze squeeze select", _reshape),
    ("copy_", _copy),
)
"""Operators of `aten`, all variants of each."""
_RULES: dict[Any, _Rule] = {
    **_CONSTANTS,
    **{one: rule for names, rule in _BY_NAMES for one in find_overloads(*(f"aten.{name}" for name in names.split()))},
    **key_by_operator({"aten.slice.Tensor": _slice}),
}
