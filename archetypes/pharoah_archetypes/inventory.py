"""The software whose versions are worth knowing, read from `inventory.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from pharoah_archetypes.rungs import RUNGS, Rung

NO_RUNG = "none"
"""In the data file: the version is recorded and explained, and never matched."""


@dataclass(frozen=True)
class Software:
    """One package."""

    name: str
    module: str
    """The module that a job imports to use it."""
    rungs: tuple[Rung, ...]
    """The rungs its version belongs to."""


@cache
def inventory() -> tuple[Software, ...]:
    """All known software. Raises ValueError naming the entry when a rung does not exist or a name comes twice."""
    data = tomllib.loads(resources.files(__package__).joinpath("inventory.toml").read_text())
    known: dict[str, Software] = {}
    for entry in data["software"]:
        name, least = entry["name"], entry["rung"]
        if name in known or least not in (*RUNGS, NO_RUNG):
            raise ValueError(f"inventory.toml: {name} comes twice or has no such rung: {least!r}")
        rungs = () if least == NO_RUNG else RUNGS[: RUNGS.index(Rung(least)) + 1]
        known[name] = Software(name, entry.get("import", name), rungs)
    return tuple(known.values())
