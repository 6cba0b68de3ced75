"""Cells of a campaign and their results, as JSON between provider, agent and fork server."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pharoah_archetypes import Fingerprint
from pharoah_benchmarks.faults import name_now
from pharoah_benchmarks.settings import RANKS
from pharoah_protocol import bounds
from pharoah_protocol.row_inputs import check_inputs
from pharoah_protocol.telemetry_samples import TelemetrySample, read_samples
from pharoah_protocol.vocabulary import ENVIRONMENT, MEASURED_OUTCOMES, NO_FAULT, DeviceKind, Outcome
from pharoah_protocol.windows import LATEST_SECONDS, Window
from pharoah_system.bounded_reading import parse_json
from pharoah_system.text import sanitize_text

MAX_DETAIL_LENGTH = 1000
"""Characters of an error message that are kept."""
MAX_CELL_ID_LENGTH = 4096
"""Characters of the id of a cell. It names all settings of the cell, one of which is the text of an environment of up
to 1,000 characters."""
MAX_LOSSES = 16
"""Losses of a cell that are kept: those of the first steps."""
MAX_CONTEXT_LENGTH = 4096
"""Characters of the effective values of a cell, as JSON; there are a few values of a line each, and the versions of
what the inventory of software knows."""


@dataclass(frozen=True, kw_only=True)
class Degradation:
    """What is done to a cell while it trains."""

    fault: str = NO_FAULT
    """A name of `pharoah_benchmarks.faults`. A node may lack it, if it is that of a plug-in."""
    dose: float = 0.0
    """In the unit of the fault."""
    onset_seconds: float = 2.0
    """Since the cell began to train. Times of telemetry are relative to it, also in a control run."""
    ramp_seconds: float = 0.0
    """Time from nothing to the full dose; 0 is a step."""
    rank: int = 0
    """The rank that the fault acts on."""

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Degradation:
        """Read JSON data, also of a plan from before the registry of faults. Raises TypeError for other keys."""
        data = dict(data)
        for before, now in _FIRST_NAMES.items():
            if before in data:
                data[now] = data.pop(before)
        return cls(**{**data, "fault": name_now(str(data["fault"]))})


_FIRST_NAMES = {"kind": "fault", "start_seconds": "onset_seconds", "strength": "dose"}
"""Names of fields in cells that were planned before the registry of faults, and their names now."""


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
    lock: str = ""
    """The locks of its environment (`environments.lock`): what is installed, not which trial it is."""

    @property
    def ranks(self) -> int:
        """Processes that train together."""
        return int(self.settings.get(RANKS, 1))

    @property
    def environment(self) -> str:
        """The text of its environment; empty for what its agent runs in."""
        return str(self.settings.get(ENVIRONMENT, ""))

    @property
    def content(self) -> str:
        """What it trains: workload and settings, as a text that is equal for equal contents."""
        return json.dumps([self.workload, self.settings], sort_keys=True)

    @property
    def ordered_device(self) -> DeviceKind:
        """What it is to run on."""
        return DeviceKind(self.settings.get("device", DeviceKind.CPU))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Cell:
        data = parse_json(text, "cell")
        degradation = data.pop("degradation")
        return cls(**data, degradation=Degradation.from_data(degradation) if degradation else None)


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """What came of a cell. A failing cell is a result, not an error of the campaign."""

    cell: str
    """The id of the cell."""
    outcome: Outcome
    """One of MEASURED_OUTCOMES."""
    detail: str = ""
    step_seconds: list[float] = field(default_factory=list)
    """How long the first `bounds.MAX_DURATIONS` steps took."""
    losses: list[float] = field(default_factory=list)
    """What the first steps computed, for comparison with other nodes."""
    windows: list[Window] = field(default_factory=list)
    """What a degraded cell would have reported as a run."""
    telemetry: list[TelemetrySample] = field(default_factory=list)
    """What a degraded cell and the agent of its node measured meanwhile."""
    began_at: float = 0.0
    """When a degraded cell began to train, in Unix seconds by the clock of its node; 0 when it did not."""
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
        data = parse_json(text, "cell")
        known = {field.name for field in fields(cls)}
        if not isinstance(data, dict) or not data.keys() <= known:
            raise ValueError(f"expected an object with some of {', '.join(sorted(known))}")
        result = cls(
            **{
                **data,
                "cell": sanitize_text(str(data["cell"]), MAX_CELL_ID_LENGTH),
                "outcome": _outcome(data["outcome"]),
                "device": DeviceKind(data.get("device", DeviceKind.CPU)),
                "device_model": sanitize_text(str(data.get("device_model", ""))),
                "detail": sanitize_text(str(data["detail"]), MAX_DETAIL_LENGTH),
                "windows": _windows(data["windows"]),
                "telemetry": read_samples(data.get("telemetry", [])),
                "began_at": _time(data.get("began_at", 0.0)),
                "context": _context(data.get("context", {})),
                "fingerprint": read_fingerprint(data.get("fingerprint", "")),
            }
        )
        if not isinstance(result.step_seconds, list):
            raise ValueError("step_seconds: expected a list")
        bounds.check_durations("step_seconds", result.step_seconds)
        _check_losses(result.losses)
        return result


@dataclass(frozen=True)
class NotBuilt:
    """The answer to a cell whose environment its node cannot build, or for which it could start no process or had no
    processor time. The cell did not run to its end because of the node: this is no outcome."""

    cell: str
    not_built: str
    """The reason."""
    may_be_tried_again: bool = False
    """Whether the node may run the cell later: its disk was full, or its memory, or it was too busy."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def read_answer(text: str) -> CellResult | NotBuilt:
    """What an agent answers to a cell. Raises ValueError, KeyError or TypeError for anything else."""
    data = parse_json(text, "cell")
    if not isinstance(data, dict) or "not_built" not in data:
        return CellResult.from_json(text)
    cell, reason = sanitize_text(str(data["cell"]), MAX_CELL_ID_LENGTH), str(data["not_built"])
    again = data.get("may_be_tried_again") is True
    return NotBuilt(cell=cell, not_built=sanitize_text(reason, MAX_DETAIL_LENGTH), may_be_tried_again=again)


@dataclass(frozen=True)
class DryCell:
    """What the dry run of a cell gave: a fingerprint, or the reason why there is none."""

    fingerprint: str = ""
    """As JSON (pharoah_archetypes.Fingerprint)."""
    reason: str = ""
    may_be_tried_again: bool = False
    """Whether the reason is that the machine was too busy, which says nothing about the cell."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DryCell:
        """Read what `to_json` wrote. Raises ValueError, KeyError or TypeError."""
        data = parse_json(text, "cell")
        reason = sanitize_text(str(data["reason"]), MAX_DETAIL_LENGTH)
        again = data.get("may_be_tried_again") is True
        return cls(fingerprint=read_fingerprint(data["fingerprint"]), reason=reason, may_be_tried_again=again)


def read_fingerprint(text: object) -> str:
    """A fingerprint that rows can be made from, or empty text. Raises ValueError that names what is wrong."""
    if not isinstance(text, str):
        raise ValueError("fingerprint: expected a text")
    if len(text) > bounds.MAX_FINGERPRINT_BYTES:
        raise ValueError(f"fingerprint: {len(text)} bytes, at most {bounds.MAX_FINGERPRINT_BYTES}")
    if text:
        check_inputs(Fingerprint.from_json(text))
    return text


def _outcome(value: object) -> Outcome:
    if value not in MEASURED_OUTCOMES:
        raise ValueError(f"outcome {value!r} is not one of {', '.join(MEASURED_OUTCOMES)}")
    return Outcome(str(value))


def _check_losses(losses: Any) -> None:
    if not isinstance(losses, list) or len(losses) > MAX_LOSSES or not all(map(bounds.is_number, losses)):
        raise ValueError(f"losses: expected at most {MAX_LOSSES} finite numbers")


def _windows(data: Any) -> list[Window]:
    if not isinstance(data, list) or len(data) > bounds.MAX_WINDOWS:
        raise ValueError(f"windows: expected a list of at most {bounds.MAX_WINDOWS}")
    try:
        return [Window.from_data(window) for window in data]
    except ValueError as error:
        raise ValueError(f"windows: {error}") from None


def _time(value: object) -> float:
    if not bounds.is_number(value) or not 0 <= value <= LATEST_SECONDS:
        raise ValueError(f"began_at: {value!r:.40} is not a time")
    return value


def _context(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict) or len(json.dumps(data)) > MAX_CONTEXT_LENGTH:
        raise ValueError(f"context: expected an object of at most {MAX_CONTEXT_LENGTH} characters")
    limit = data.get("memory_limit", 0)
    if not bounds.is_number(limit) or not 0 <= limit <= bounds.MAX_MEMORY_BYTES:
        raise ValueError(f"context.memory_limit: {limit!r:.40} is not a number of bytes up to a petabyte")
    versions = data.get("versions", {})
    if not isinstance(versions, dict) or not all(isinstance(version, str) for version in versions.values()):
        raise ValueError("context.versions: expected an object of texts")
    return data
