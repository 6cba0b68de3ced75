"""What differences between runs are known to do, read from `effects.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

DOES = ("crash", "hang", "numbers", "speed", "memory")


@dataclass(frozen=True)
class Effect:
    """One documented effect of a difference between runs."""

    name: str
    does: str
    weight: float
    """How likely it is what somebody looks for, 0 to 1."""
    why: str
    source: str


def effect_of(group: str, name: str) -> Effect | None:
    """The first documented effect of a group (`environment`, `settings`, ...) whose pattern fits a name."""
    return next((effect for effect in _effects().get(group, ()) if fnmatchcase(name, effect.name)), None)


def is_looked_at(variable: str) -> bool:
    """Whether an environment variable may have an effect on a job, and says nothing about who runs it."""
    data = _data()
    return any(fnmatchcase(variable, pattern) for pattern in data["looked_at"]) and not any(
        fnmatchcase(variable, pattern) for pattern in data["ignored"]
    )


@cache
def _effects() -> dict[str, tuple[Effect, ...]]:
    """Raises ValueError naming the entry that does something unknown, or has a weight outside of 0 to 1."""
    known: dict[str, tuple[Effect, ...]] = {}
    for group, entries in _data().items():
        if isinstance(entries, list) and entries and isinstance(entries[0], dict):
            known[group] = tuple(Effect(**entry) for entry in entries)
            for effect in known[group]:
                if effect.does not in DOES or not 0 <= effect.weight <= 1:
                    raise ValueError(f"effects.toml: {group}.{effect.name}: {effect.does!r}, {effect.weight}")
    return known


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("effects.toml").read_text())
