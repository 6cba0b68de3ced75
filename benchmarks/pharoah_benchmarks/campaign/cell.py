"""Cells of a campaign and their results, as JSON between provider, agent and fork server."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

from pharoah_archetypes import Fingerprint
from pharoah_protocol.text import sanitize_text
from pharoah_protocol.vocabulary import MEASURED_OUTCOMES, DeviceKind, Fault, Outcome
from pharoah_protocol.windows import Window

LONGEST_DETAIL = 1000
"""Characters of an error message that are kept."""


@dataclass(frozen=True)
class Degradation:
    """What is done to a cell while it trains."""

    kind: Fault
    start_seconds: float = 2.0
    ramp_seconds: float = 3.0
    """Time from nothing to full strength; 0 is a step."""
    strength: float = 1.0
    """cpu_stressor: the share of time it wants, 0 to 1; leak: bytes per second."""


@dataclass(frozen=True)
class Cell:
    """One training run that a campaign orders."""

    id: str
    workload: str
    settings: dict[str, Any]
    steps: int = 4
    repeat: int = 0
    seconds: float = 0.0
    """Train for this long instead of `steps`; for degraded cells."""
    limit_seconds: float = 60.0
    degradation: Degradation | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Cell:
        data = json.loads(text)
        degradation = data.pop("degradation")
        if degradation:
            degradation = Degradation(**{**degradation, "kind": Fault(degradation["kind"])})
        return cls(**data, degradation=degradation or None)


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """What came of a cell. A failing cell is a result, not an error of the campaign."""

    cell: str
    """The id of the cell."""
    outcome: Outcome
    """One of MEASURED_OUTCOMES."""
    detail: str = ""
    step_seconds: list[float] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    """What a degraded cell would have reported as a run."""
    context: dict[str, Any] = field(default_factory=dict)
    """Effective values, read back inside the cell."""
    device: DeviceKind = DeviceKind.CPU
    """What the model was on, read back inside the cell. Results that predate the field were measured on the CPU."""
    device_model: str = ""
    """Empty when the cell ended before it had a model."""
    fingerprint: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CellResult:
        """Read what `to_json` wrote. Raises ValueError, KeyError or TypeError for what no cell can have measured."""
        data = json.loads(text)
        result = cls(
            **{
                **data,
                "outcome": _outcome(data["outcome"]),
                "device": DeviceKind(data.get("device", DeviceKind.CPU)),
                "device_model": sanitize_text(str(data.get("device_model", ""))),
                "detail": sanitize_text(str(data["detail"]), LONGEST_DETAIL),
                "windows": _windows(data["windows"]),
            }
        )
        if not all(isfinite(seconds) and seconds > 0 for seconds in result.step_seconds):
            raise ValueError("step_seconds: not all of them are times above 0")
        if result.fingerprint:
            Fingerprint.from_json(result.fingerprint)
        return result


def _outcome(value: object) -> Outcome:
    if value not in MEASURED_OUTCOMES:
        raise ValueError(f"outcome {value!r} is not one of {', '.join(MEASURED_OUTCOMES)}")
    return Outcome(str(value))


def _windows(data: Any) -> list[Window]:
    try:
        return [Window.from_data(window) for window in data]
    except ValueError as error:
        raise ValueError(f"windows: {error}") from None
