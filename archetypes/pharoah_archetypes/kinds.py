"""What operators do with a machine, as far as their time goes, read from `kinds.toml`."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

NONE = "none"
"""The kind of operators that only take the time of being called."""


@cache
def kind_of(operator: str) -> str:
    """The kind of an operator named as in the vocabulary, `aten.mm`."""
    name = operator.rpartition(".")[2]
    return next(kind for kind, pattern in _patterns() if fnmatchcase(name, pattern))


@cache
def kinds() -> tuple[str, ...]:
    """All kinds whose work takes time."""
    return tuple(kind for kind in _data()["kinds"] if kind != NONE)


@cache
def computing() -> frozenset[str]:
    """Kinds whose work is counted in floating-point operations; that of all others in bytes."""
    return frozenset(_data()["compute"])


@cache
def _patterns() -> tuple[tuple[str, str], ...]:
    return tuple((kind, pattern) for kind, patterns in _data()["kinds"].items() for pattern in patterns)


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("kinds.toml").read_text())
