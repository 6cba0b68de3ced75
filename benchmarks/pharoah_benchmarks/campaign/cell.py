"""Cells and their outcomes: what is ordered and what came of it. JSON between provider, agent and fork server."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

from pharoah_archetypes import Fingerprint
from pharoah_protocol.text import sanitize_text
from pharoah_protocol.windows import Window

LONGEST_DETAIL = 1000
OUTCOMES = ("ok", "memory", "error", "nan", "timeout", "crash")


@dataclass(frozen=True)
class Degradation:
    """What is done to a cell while it trains."""

    kind: str
    """`cpu_stressor`: another process uses part of the core. `leak`: the process grows until its memory limit.
    `none`: the control run."""
    start_seconds: float = 2.0
    ramp_seconds: float = 3.0
    """Time from nothing to full strength; 0 is a step."""
    strength: float = 1.0
    """cpu_stressor: share of time it wants, 0-1; leak: bytes per second."""


@dataclass(frozen=True)
class Cell:
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
        return cls(**data, degradation=Degradation(**degradation) if degradation else None)


@dataclass(frozen=True)
class Outcome:
    """What came of a cell. A failing cell is a result, not an error of the campaign."""

    cell: str
    outcome: str
    detail: str = ""
    step_seconds: list[float] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    """What a degraded cell would have reported as a run."""
    context: dict[str, Any] = field(default_factory=dict)
    """Effective values, read back inside the cell."""
    fingerprint: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """What `to_json` wrote. Raises ValueError, KeyError, TypeError for what no cell can have told."""
        data = json.loads(text)
        try:
            data["windows"] = [Window.from_data(window) for window in data["windows"]]
        except ValueError as error:
            raise ValueError(f"windows: {error}") from None
        outcome = cls(**{**data, "detail": sanitize_text(str(data["detail"]), LONGEST_DETAIL)})
        if outcome.outcome not in OUTCOMES:
            raise ValueError(f"outcome {outcome.outcome!r} is not one of {', '.join(OUTCOMES)}")
        if not all(isfinite(seconds) and seconds > 0 for seconds in outcome.step_seconds):
            raise ValueError("step_seconds: not all of them are times above 0")
        if outcome.fingerprint:
            Fingerprint.from_json(outcome.fingerprint)
        return outcome
