"""The operator vocabulary, read from `vocabulary.toml` once and checked when it is read."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

PHASES = ("fwd", "bwd")


@dataclass(frozen=True)
class Rewrite:
    """One operation that some kernels write out as several classes."""

    phase: str
    source: tuple[str, ...]
    target: str
    features: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Vocabulary:
    classes: dict[str, str]
    """Operator name (`aten.mm`) to class (`gemm`)."""
    rewrites: tuple[Rewrite, ...]
    kernels: dict[str, dict[str, str]]
    """Feature name to {value: substring of the operator name}."""


@cache
def vocabulary() -> Vocabulary:
    """The vocabulary this release speaks.

    Raises ValueError when an operator stands in two classes or a rewrite names an unknown class or phase: both are
    mistakes in the data file, and silently picking one would change every signature.
    """
    data = tomllib.loads(resources.files(__package__).joinpath("vocabulary.toml").read_text())
    classes: dict[str, str] = {}
    for name, operators in data["classes"].items():
        for operator in operators:
            if operator in classes:
                raise ValueError(f"vocabulary.toml: {operator} is in {classes[operator]} and in {name}")
            classes[operator] = name
    return Vocabulary(classes, tuple(_rewrite(row, data["classes"]) for row in data["rewrites"]), data["kernels"])


def _rewrite(row: dict[str, object], known: dict[str, object]) -> Rewrite:
    source, target, features = row["from"], row["to"], row.get("feature", {})
    assert isinstance(source, list) and isinstance(target, str) and isinstance(features, dict)
    if unknown := {*source, target} - set(known):
        raise ValueError(f"vocabulary.toml: a rewrite names unknown classes {sorted(unknown)}")
    if row["phase"] not in PHASES:
        raise ValueError(f"vocabulary.toml: a rewrite names the phase {row['phase']!r}; known are {PHASES}")
    return Rewrite(str(row["phase"]), tuple(source), target, tuple(sorted(features.items())))
