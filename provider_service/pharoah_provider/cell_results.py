"""Results of cells as executors send them: bounded by the cell that was ordered, read, and held against it.

Reading processes read what agents send (`pharoah_provider.readers`). They give back a small head, and the long columns
as bytes that are stored as they are, so that the event loop does nothing whose time grows with a result.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from pharoah_benchmarks.campaign.cell import Cell, CellResult, NotBuilt, read_answer
from pharoah_benchmarks.campaign.record import CELL_WINDOW_SECONDS, SAMPLE_SECONDS
from pharoah_protocol import bounds
from pharoah_protocol.telemetry_samples import MAX_SAMPLES
from pharoah_protocol.vocabulary import DeviceKind, Outcome
from pharoah_system.had_time import MAX_WALL_RATIO

MAX_RESULT_BYTES = 1 << 22
"""The result of a cell as JSON: the most durations and windows that are accepted, with a fingerprint, are 3 MB."""
MAX_CELL_MESSAGE_BYTES = MAX_RESULT_BYTES + (1 << 16)
"""A message of an agent with such a result: the id of the order and the lengths of fields are far below 64 KiB."""
REST_BYTES = 1 << 16
"""What a result has besides its lists and its fingerprint: its id, its detail and its context are far below that."""
MAX_STEPS_PER_SECOND = 10_000.0
"""Steps of a cell that trains for a time: one of the smallest workload takes 0.3 ms."""
SPARE_STEPS, SPARE_SECONDS = 2, 20.0
"""Steps that several ranks may do before all of them hear that it was the last one. Seconds that a cell may go on
beyond its limit before it is ended."""
MAX_DEVICES = 128
"""Devices of a node, each of which gives a sample of telemetry: 16 GPUs, 24 ports and 8 memory controllers are 48."""
_STEP_BYTES, _WINDOW_BYTES, _SAMPLE_BYTES = 28, 512, 1024
"""As JSON: a number has at most 24 characters, a window two signals and a sample of telemetry fewer than ten."""


@dataclass(frozen=True)
class AnswerBounds:
    """What the answer to one cell may have at the most."""

    steps: int
    windows: int
    samples: int

    @classmethod
    def from_cell(cls, cell: Cell) -> AnswerBounds:
        """A cell that does so many steps has as many times of steps; one to which nothing is done has no windows and
        no telemetry."""
        lasts_seconds = MAX_WALL_RATIO * cell.limit_seconds + SPARE_SECONDS
        steps = cell.steps + SPARE_STEPS + (MAX_STEPS_PER_SECOND * lasts_seconds if cell.seconds else 0.0)
        windows = samples = 0.0
        if cell.degradation is not None:
            windows = lasts_seconds / CELL_WINDOW_SECONDS
            samples = lasts_seconds / SAMPLE_SECONDS * (1 + MAX_DEVICES)
        return cls(
            steps=int(min(steps, bounds.MAX_DURATIONS)),
            windows=int(min(windows, bounds.MAX_WINDOWS)),
            samples=int(min(samples, MAX_SAMPLES)),
        )

    @property
    def result_bytes(self) -> int:
        """The result as JSON. The fingerprint is JSON inside JSON, which may double its length."""
        lists = self.steps * _STEP_BYTES + self.windows * _WINDOW_BYTES + self.samples * _SAMPLE_BYTES
        return min(MAX_RESULT_BYTES, REST_BYTES + 2 * bounds.MAX_FINGERPRINT_BYTES + lists)

    def check(self, result: CellResult) -> None:
        """Raise ValueError that names what the cell cannot have given."""
        for name in ("step_seconds", "windows", "telemetry"):
            most = {"step_seconds": self.steps, "windows": self.windows, "telemetry": self.samples}[name]
            if (size := len(getattr(result, name))) > most:
                raise ValueError(f"{name}: {size} values, the cell that was ordered has at most {most}")


@dataclass(frozen=True, kw_only=True)
class CheckedResult(CellResult):
    """A result that a reading process has checked. Its long columns are texts of that process; `windows` and
    `telemetry` are empty."""

    windows_json: str
    telemetry_json: str


_COLUMNS = ("step_seconds", "windows", "telemetry", "fingerprint")
"""Fields that are parts of their own."""


def read_result(text: str) -> CellResult | NotBuilt:
    """The answer to a cell. Raises ValueError for a text that is cut off, too long, or that no cell can have given."""
    if len(text) > MAX_RESULT_BYTES:
        raise ValueError(f"{len(text)} bytes, at most {MAX_RESULT_BYTES}")
    try:
        return read_answer(text)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError(f"{error!a}"[:200]) from None


def is_of(result: CellResult, cell: Cell) -> bool:
    """Whether a result can be that of a cell: of its id, with windows only where it was to be degraded, and with no
    more seconds of steps than the cell may take: its limit runs on the time that it has had, its steps in wall time."""
    windows_ordered = not result.windows or cell.degradation is not None
    return (
        result.cell == cell.id and windows_ordered and sum(result.step_seconds) <= MAX_WALL_RATIO * cell.limit_seconds
    )


def parts_of(answer: CellResult | NotBuilt) -> list[bytes]:
    """What a reading process gives back: a head of at most some 64 KiB, and the long columns as they are stored."""
    if isinstance(answer, NotBuilt):
        return [json.dumps(asdict(answer)).encode()]
    head = {field.name: getattr(answer, field.name) for field in fields(CellResult) if field.name not in _COLUMNS}
    return [
        json.dumps(head).encode(),
        array("d", answer.step_seconds).tobytes(),
        json.dumps([asdict(window) for window in answer.windows]).encode(),
        json.dumps([asdict(sample) for sample in answer.telemetry]).encode(),
        answer.fingerprint.encode(),
    ]


def from_parts(parts: Sequence[bytes]) -> CheckedResult | NotBuilt:
    """The answer in what `parts_of` has made."""
    head = json.loads(parts[0])
    if len(parts) == 1:
        return NotBuilt(**head)
    seconds = array("d")
    seconds.frombytes(parts[1])
    windows, telemetry, fingerprint = (part.decode() for part in parts[2:])
    return CheckedResult(
        **{**head, "outcome": Outcome(head["outcome"]), "device": DeviceKind(head["device"])},
        step_seconds=seconds.tolist(),
        windows_json=windows,
        telemetry_json=telemetry,
        fingerprint=fingerprint,
    )
