"""Telemetry of a cell: what the cell itself and the agent of its node measured while a fault was in force.

Amounts, not ratios: the cells of campaigns are the provider's own, so nothing has to be hidden. The times are relative
to the onset of the fault, so that dose and signals can be joined.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pharoah_protocol.bounds import MAX_WINDOW_VALUES, is_number

STEP_SECONDS = "step_seconds"
"""The median step of the cell since the sample before."""
RESIDENT_BYTES = "resident_bytes"
"""Physical memory of the cell's process."""
CPU_RATIO = "cpu_ratio"
"""CPU time of the cell's process over the time that has passed; it falls while the process waits."""
LOSS = "loss"
"""The newest loss of the cell."""
DISK_FREE_RATIO = "disk_free_ratio"
"""The free share of the file system of the cell's scratch folder, 0 to 1."""

MAX_SAMPLES = 4_000
"""Samples of one cell: half an hour of one per second each of the cell and of the agent."""
MAX_VALUE = 1e18
"""The largest value of a signal: bytes of the largest memory are a thousandth of it."""
MAX_TIME_SECONDS = 1e6
"""The longest time from or to an onset: no cell lasts for a week."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}(:[a-z0-9_.-]{1,63})?")
"""A signal, and the device that it is about where a node has several."""


@dataclass(frozen=True, kw_only=True)
class TelemetrySample:
    """The values of some signals at one moment. A signal that was not measured has no value."""

    at_seconds: float
    """Since the onset of the fault; negative before it."""
    values: Mapping[str, float]

    @classmethod
    def from_data(cls, data: Any) -> TelemetrySample:
        """Read a sample from JSON data. Raises ValueError that states what is wrong."""
        if not isinstance(data, dict) or data.keys() != {"at_seconds", "values"}:
            raise ValueError("expected at_seconds and values")
        at, values = data["at_seconds"], data["values"]
        if not is_number(at) or abs(at) > MAX_TIME_SECONDS:
            raise ValueError(f"at_seconds: {at!r:.40} is not a time around an onset")
        if not isinstance(values, dict) or len(values) > MAX_WINDOW_VALUES:
            raise ValueError(f"values: expected at most {MAX_WINDOW_VALUES} numbers by the names of signals")
        for name, value in values.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"values: {name!r:.80} is not the name of a signal")
            if not is_number(value) or abs(value) > MAX_VALUE:
                raise ValueError(f"{name}: {value!r:.40} is not a number up to {MAX_VALUE:g}")
        return cls(at_seconds=float(at), values={name: float(value) for name, value in values.items()})


def read_samples(data: Any) -> list[TelemetrySample]:
    """The samples of one cell from JSON data. Raises ValueError that states what is wrong."""
    if not isinstance(data, list) or len(data) > MAX_SAMPLES:
        raise ValueError(f"telemetry: expected a list of at most {MAX_SAMPLES}")
    try:
        return [TelemetrySample.from_data(sample) for sample in data]
    except ValueError as error:
        raise ValueError(f"telemetry: {error}") from None
