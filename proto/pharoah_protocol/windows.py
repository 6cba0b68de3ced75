"""A window: what the signals of a run showed at one moment, by the name of the signal.

Cells of a campaign record windows, learning fits on them, and the provider scores the same windows of real runs.
`pharoah_learning.signals` lists the signals there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

STEP_RATIO = "step_ratio"
"""Name of the signal: step time over the run's own baseline."""
MEMORY_RATIO = "memory_ratio"
"""Name of the signal: resident memory over the run's own baseline."""

_FIRST_FORMAT = (STEP_RATIO, MEMORY_RATIO)
"""Signals of a window that was stored as a plain list: the time, then these two values."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The values of some signals at one moment. A signal that was not measured has no value."""

    at_seconds: float
    """Since the run began, or Unix time: readers compare windows of one run only."""
    values: Mapping[str, float]

    @classmethod
    def from_data(cls, data: Any) -> Window:
        """Read a window from JSON data, also one of the first format. Raises ValueError that says what is wrong."""
        if isinstance(data, list):
            if len(data) != 1 + len(_FIRST_FORMAT):
                raise ValueError(f"expected {1 + len(_FIRST_FORMAT)} numbers in {data!r}")
            data = {"at_seconds": data[0], "values": dict(zip(_FIRST_FORMAT, data[1:], strict=True))}
        if not isinstance(data, dict) or data.keys() != {"at_seconds", "values"}:
            raise ValueError("expected at_seconds and values")
        if not isinstance(data["values"], dict):
            raise ValueError("values: expected numbers by the names of signals")
        values = {str(name): _number(str(name), value) for name, value in data["values"].items()}
        return cls(at_seconds=_number("at_seconds", data["at_seconds"]), values=values)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(f"{name}: {value!r} is not a finite number")
    return float(value)
