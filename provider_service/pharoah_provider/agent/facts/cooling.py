"""How warm a node is at rest: what its cooling and its place in the room make of it.

A temperature of now follows what runs, and would say when a job computes. So the fact is the coolest reading of the
coolest sensor since the agent began, in bands of 20 degrees: it falls at most a few times, and never follows a job.
"""

from __future__ import annotations

from math import inf
from pathlib import Path

from pharoah_provider.agent.facts._group import FactGroup, text_of

SENSORS = Path("/sys/class")
BAND_DEGREES = 20
PLAUSIBLE_DEGREES = (1.0, 120.0)
"""Sensors that are not connected read zero, less or far more."""


class _Coolest:
    """The coolest reading so far, in degrees Celsius."""

    def __init__(self) -> None:
        self._degrees = inf

    def band(self) -> str:
        """The band that holds it, such as `20-40`; empty without a sensor."""
        low, high = PLAUSIBLE_DEGREES
        self._degrees = min([self._degrees, *(one for one in _readings() if low <= one <= high)])
        if self._degrees == inf:
            return ""
        start = int(self._degrees // BAND_DEGREES) * BAND_DEGREES
        return f"{start}-{start + BAND_DEGREES}"


def _readings() -> list[float]:
    paths = [*SENSORS.glob("thermal/thermal_zone*/temp"), *SENSORS.glob("hwmon/hwmon*/temp*_input")]
    texts = [text_of(path) for path in paths]
    return [int(text) / 1000 for text in texts if text.lstrip("-").isdecimal()]


_coolest = _Coolest()

FACTS = FactGroup(
    name="cooling",
    help="the coolest reading of the coolest sensor since the agent began, in bands of 20 degrees Celsius (sysfs)",
    facts=("temperature_band",),
    read=lambda: {"temperature_band": _coolest.band()},
)
