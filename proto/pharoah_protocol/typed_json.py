"""Frozen dataclasses as JSON objects, and back with every field checked.

Supported field types: str, int, float, bool, enums of strings, `NamedText`, other dataclasses, `Sequence[T]`,
`tuple[T, ...]`, `list[T]`, `dict[str, T]`, `T | None` and Any. Standard library only: training processes import this.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class NamedText(str):
    """A string that stands for an entry of a registry, such as an incident state."""

    @classmethod
    def from_name(cls, name: object) -> NamedText:
        """The entry of this name. Raises ValueError that lists the names there are."""
        raise NotImplementedError


class FieldError(ValueError):
    """A field that does not have the type it must have; the message names the field."""


to_json: Callable[[object], str] = json.JSONEncoder(separators=(",", ":"), default=vars, check_circular=False).encode
"""Text of a value. Nested dataclasses are written as objects; `default=vars` is called for them only."""


def read_object(kind: type[T], data: object, path: str = "", *, drop_unknown: bool = False) -> T:
    """An instance of a dataclass from a JSON object. `path` names the object in errors. Raises FieldError.

    With `drop_unknown`, fields that this release does not know are left out, here and in the objects inside.
    """
    path = path or kind.__name__
    if not isinstance(data, dict):
        raise FieldError(f"{path}: an object was expected, not {_shorten(data)}")
    hints, required = _describe(kind)  # type: ignore[arg-type]
    if drop_unknown:
        data = {name: value for name, value in data.items() if name in hints}
    for name in data:
        if name not in hints:
            raise FieldError(f"{path}.{name}: there is no such field")
    for name in required:
        if name not in data:
            raise FieldError(f"{path}.{name}: the field is missing")
    return kind(**{name: _read(hints[name], value, f"{path}.{name}", drop_unknown) for name, value in data.items()})


@cache
def _describe(kind: type) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Types of all fields, and the names of those without a default."""
    hints = get_type_hints(kind)
    names = fields(kind)
    required = tuple(f.name for f in names if f.default is MISSING and f.default_factory is MISSING)
    return {field.name: hints[field.name] for field in names}, required


def _read(hint: Any, value: Any, path: str, drop_unknown: bool) -> Any:
    if hint is Any:
        return value
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        wanted = next(argument for argument in arguments if argument is not type(None))
        return None if value is None and type(None) in arguments else _read(wanted, value, path, drop_unknown)
    if origin in (tuple, Sequence):
        return tuple(_read(arguments[0], one, path, drop_unknown) for one in _check(list, value, path, "a list"))
    if origin is list:
        return [_read(arguments[0], one, path, drop_unknown) for one in _check(list, value, path, "a list")]
    if origin is dict:
        items = _check(dict, value, path, "an object").items()
        return {name: _read(arguments[1], one, f"{path}.{name}", drop_unknown) for name, one in items}
    if is_dataclass(hint):
        return read_object(hint, value, path, drop_unknown=drop_unknown) if isinstance(hint, type) else value
    return _plain(hint, value, path)


def _plain(hint: Any, value: Any, path: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError:
            allowed = ", ".join(str(member.value) for member in hint)
            raise FieldError(f"{path}: {_shorten(value)} is not one of {allowed}") from None
    if isinstance(hint, type) and issubclass(hint, NamedText):
        try:
            return hint.from_name(value)
        except ValueError as error:
            raise FieldError(f"{path}: {error}") from None
    if hint is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise FieldError(f"{path}: {_shorten(value)} is too large") from None
    # `type(value) is`, because a bool is an int for isinstance.
    if type(value) is not hint:
        raise FieldError(f"{path}: {hint.__name__} was expected, not {_shorten(value)}")
    return value


def _check(kind: type, value: Any, path: str, expected: str) -> Any:
    if not isinstance(value, kind):
        raise FieldError(f"{path}: {expected} was expected, not {_shorten(value)}")
    return value


def _shorten(value: object) -> str:
    """A wrong value in an error: its beginning is enough to find it."""
    return repr(value)[:80]
