"""A group of facts: configuration of a node that is read in one go."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

FACT_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
MAX_VALUE_LENGTH = 200
"""Characters of a value; the provider accepts facts of 256."""


@dataclass(frozen=True)
class FactGroup:
    """One entry of the registry. Raises ValueError for a field that cannot be."""

    name: str
    help: str
    """Where the facts come from, in a few words."""
    facts: tuple[str, ...]
    """Names of the facts, without the name of a vendor."""
    read: Callable[[], Mapping[str, str]]
    """The facts that this node has, by name. What cannot be read is absent. Reading is passive: it starts nothing on a
    device and opens no context there."""

    def __post_init__(self) -> None:
        if not self.help or not self.facts:
            raise ValueError(f"{self.name}: help and facts must not be empty")
        for name in (self.name, *self.facts):
            if not FACT_NAME.fullmatch(name):
                raise ValueError(f"{self.name}: {name!r} is not a lower-case name with underscores")


def text_of(path: Path) -> str:
    """What a file of the kernel says, in one line; empty where it cannot be read."""
    try:
        return " ".join(path.read_text(errors="replace").split())
    except OSError:
        return ""


def join_values(values: Iterable[str]) -> str:
    """What several devices show: `8 x 400`, or `4 x 400, 4 x 500`; empty for none."""
    return ", ".join(f"{count} x {value}" for value, count in sorted(Counter(filter(None, values)).items()))
