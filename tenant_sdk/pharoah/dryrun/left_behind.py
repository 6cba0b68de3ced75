"""What the import of modules has left behind for functions that ran: values that decide what the same code does.

These are the defaults of the functions, the variables of their modules that they read, and the attributes of the
classes in their modules. Numbers, texts and containers of them count by value, functions and classes by name.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

MAX_ITEMS, MAX_DEPTH = 1000, 4
"""A container counts up to so many of its items, and down to such a depth."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_NO_DIFFERENCE = {"__version__", "__file__", "__path__", "__spec__"}
"""Variables that differ between any two versions, or places: code that writes the name of its version does nothing
else for that."""
_BOOKKEEPING = {"__doc__", "__module__", "__dict__", "__weakref__", "__firstlineno__", "__static_attributes__"}


class LeftBehind(NamedTuple):
    """One thing that imports leave behind."""

    module: str
    text: str
    """What it is, as one line."""


def find_left_behind(ran: Mapping[CodeType, str]) -> Iterator[LeftBehind]:
    """All things that the code which ran can see. `ran`: code that ran, and the names of its modules."""
    for function in gc.get_objects():
        if type(function) is FunctionType and (code := function.__code__) in ran:
            if "<locals>" in code.co_qualname:  # one of many that another function makes, which gives it its defaults
                continue
            defaults = _describe(function.__defaults__), _describe(function.__kwdefaults__)
            yield LeftBehind(ran[code], f"defaults {code.co_qualname} {defaults}")
    for name in sorted(set(ran.values()) & sys.modules.keys()):
        for variable in tuple(vars(sys.modules[name]).values()):
            if isinstance(variable, type) and variable.__module__ == name:
                yield LeftBehind(name, _name_class(variable))
    for code, name in ran.items():
        variables = vars(sys.modules[name]) if name in sys.modules else {}
        for variable in variables.keys() & set(code.co_names) - _NO_DIFFERENCE:
            yield LeftBehind(name, f"reads {code.co_qualname} {variable} {_describe(variables[variable])}")


def _name_class(made: type) -> str:
    bases = [f"{base.__module__}.{base.__qualname__}" for base in made.__mro__[1:]]
    attributes = {name: value for name, value in tuple(vars(made).items()) if name not in _BOOKKEEPING}
    return f"class {made.__qualname__} {bases} {_describe(attributes)}"


def _describe(value: Any, depth: int = 0) -> str:
    """A text that is equal in another process that has imported the same."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        return f"{getattr(value, '__module__', '')}.{value.__qualname__}"
    if depth < MAX_DEPTH:
        if isinstance(value, dict):
            items = [f"{_describe(k, depth + 1)}: {_describe(v, depth + 1)}" for k, v in _first(value.items())]
            return f"{type(value).__name__}{{{', '.join(items)}}}"
        if isinstance(value, (list, tuple)):
            return f"{type(value).__name__}[{', '.join(_describe(item, depth + 1) for item in _first(value))}]"
        if isinstance(value, (set, frozenset)):
            return f"{type(value).__name__}{sorted(_describe(item, depth + 1) for item in _first(value))}"
    return f"<{type(value).__module__}.{type(value).__qualname__}>"


def _first(values: Any) -> list[Any]:
    return list(values)[:MAX_ITEMS]
