"""The software whose versions are worth knowing, read from `inventory.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from pharoah_archetypes.rungs import RUNGS, Rung


@dataclass(frozen=True)
class Software:
    name: str
    module: str
    """What a job that uses it has imported."""
    rungs: tuple[Rung, ...]
    """The rungs its version belongs to."""


@cache
def inventory() -> tuple[Software, ...]:
    """All known software. Raises ValueError naming the entry when a rung does not exist or a name comes twice."""
    data = tomllib.loads(resources.files(__package__).joinpath("inventory.toml").read_text())
    known: dict[str, Software] = {}
    for entry in data["software"]:
        name, rung = entry["name"], entry["rung"]
        if name in known or rung not in (*RUNGS, "none"):
            raise ValueError(f"inventory.toml: {name} comes twice or has no such rung: {rung!r}")
        rungs = () if rung == "none" else RUNGS[: RUNGS.index(Rung(rung)) + 1]
        known[name] = Software(name, entry.get("import", name), rungs)
    return tuple(known.values())
