"""A window: what the signals of a run showed at one moment, by the name of the signal.

Cells of a campaign record windows, learning fits on them, and the provider scores the same windows of real runs.
`pharoah_learning.signals` lists the signals there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pharoah_protocol.bounds import MAX_RATIO, MAX_WINDOW_VALUES, is_number

STEP_RATIO = "step_ratio"
"""Name of the signal: step time over the run's own baseline."""
MEMORY_RATIO = "memory_ratio"
"""Name of the signal: resident memory over the run's own baseline."""

LATEST_SECONDS = 1e11
"""The largest time of a window, the year 5138 as Unix time: a difference of two is exact to 20 microseconds."""

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
        if not isinstance(data["values"], dict) or len(data["values"]) > MAX_WINDOW_VALUES:
            raise ValueError(f"values: expected at most {MAX_WINDOW_VALUES} numbers by the names of signals")
        values = {str(name): _number(str(name), value, MAX_RATIO) for name, value in data["values"].items()}
        return cls(at_seconds=_number("at_seconds", data["at_seconds"], LATEST_SECONDS), values=values)


def _number(name: str, value: object, largest: float) -> float:
    if not is_number(value):
        raise ValueError(f"{name}: {value!r:.40} is not a finite number")
    if abs(value) > largest:
        raise ValueError(f"{name}: {value!r:.40} is beyond {largest:g}")
    return float(value)
