"""The rungs of the ladder, from most to least specific."""

from __future__ import annotations

from enum import StrEnum


class Rung(StrEnum):
    """How specific a signature is. The order of the members is the order of the ladder."""

    EXACT = "exact"
    """Archetype, features, size classes and full versions."""
    MINOR = "minor"
    """Archetype, features and minor versions."""
    ONE_DEVICE = "one-device"
    """The archetype without its collectives, features and minor versions: what each device of a job computes."""
    COLLECTIVES = "collectives"
    """What a distributed job sends, whatever it computes, and minor versions. Jobs that send nothing lack this rung."""
    MAJOR = "major"
    """Archetype and major versions."""


RUNGS = tuple(Rung)
"""From most to least specific."""
