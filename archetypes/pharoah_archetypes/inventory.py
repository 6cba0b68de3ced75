"""The software whose versions are worth knowing, read from `inventory.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from pharoah_archetypes.rungs import RUNGS, Rung

_HOLD = {
    Rung.EXACT: (Rung.EXACT,),
    Rung.MINOR: (Rung.EXACT, Rung.MINOR, Rung.ONE_DEVICE),
    Rung.COLLECTIVES: (Rung.EXACT, Rung.MINOR, Rung.COLLECTIVES),
    Rung.MAJOR: RUNGS,
}
"""The rung of the data file to the rungs that hold the version. What only serves to send is no part of one device."""
NO_RUNG = "none"
"""In the data file: the version is recorded and explained, and never matched."""


@dataclass(frozen=True)
class Software:
    """One package."""

    name: str
    module: str
    """The module that a job imports to use it."""
    least: Rung | None
    """The least specific rung that its version belongs to; None for a version that is never matched."""

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The rungs its version belongs to."""
        return _HOLD[self.least] if self.least else ()


@cache
def inventory() -> tuple[Software, ...]:
    """All known software. Raises ValueError naming the entry when a rung does not exist or a name comes twice."""
    data = tomllib.loads(resources.files(__package__).joinpath("inventory.toml").read_text())
    known: dict[str, Software] = {}
    for entry in data["software"]:
        name, least = entry["name"], entry["rung"]
        if name in known or least not in (*_HOLD, NO_RUNG):
            raise ValueError(f"inventory.toml: {name} comes twice or has no such rung: {least!r}")
        known[name] = Software(name, entry.get("import", name), None if least == NO_RUNG else Rung(least))
    return tuple(known.values())
