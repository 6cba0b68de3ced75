"""Orders to the child that measures and its answers, both as JSON lines. Standard library only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pharoah_benchmarks.micro._place import Peer, Place
from pharoah_protocol.bounds import is_number
from pharoah_system.bounded_reading import MESSAGE_LIMITS, parse_json

SLOW_SECONDS = 15.0
"""Time beyond its repeats that a micro-benchmark may take on each device: to make its inputs, to check its answer, and
to wait for a partner that does not come (`together.PARTNER_SECONDS`)."""
MIN_DUTY = 0.01
"""A measurement at a smaller duty takes more than a hundred times its limit."""


@dataclass(frozen=True, kw_only=True)
class MeasureOrder:
    """One measurement. Raises ValueError that names the field."""

    benchmark: str
    repeats: int
    limit_seconds: float
    """Seconds of work of all repeats together; without the time between them in which the child sleeps."""
    duty: float = 1.0
    """Share of the time in which the child works: at 0.1 it sleeps nine times as long as it has worked."""
    scratch_folder: str = ""
    remote_folder: str = ""
    """Empty: the operator has named none."""
    peer: Peer | None = None

    def __post_init__(self) -> None:
        problems = {
            "benchmark": not isinstance(self.benchmark, str) or not self.benchmark,
            "repeats": not isinstance(self.repeats, int) or isinstance(self.repeats, bool) or self.repeats < 1,
            "limit_seconds": not is_number(self.limit_seconds) or self.limit_seconds <= 0,
            "duty": not is_number(self.duty) or not MIN_DUTY <= self.duty <= 1,
            "scratch_folder": not _is_folder(self.scratch_folder),
            "remote_folder": not _is_folder(self.remote_folder),
        }
        for field, wrong in problems.items():
            if wrong:
                raise ValueError(f"order: {field}: {getattr(self, field)!r} is invalid")

    @property
    def longest_seconds(self) -> float:
        """How long the repeats may take, with the sleep between them."""
        return self.limit_seconds / self.duty

    def place(self) -> Place:
        """Where the kernel runs."""
        scratch, remote = (Path(text) if text else None for text in (self.scratch_folder, self.remote_folder))
        return Place(scratch, remote, self.peer)

    def to_json(self) -> str:
        """The order as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> MeasureOrder:
        """Read an order. Raises ValueError that names the field."""
        data = parse_json(line, "order", MESSAGE_LIMITS)
        if not isinstance(data, dict) or not {"benchmark", "repeats", "limit_seconds"} <= set(data):
            raise ValueError("order: expected an object with benchmark, repeats and limit_seconds")
        unknown = set(data) - set(cls.__dataclass_fields__)
        if unknown:
            raise ValueError(f"order: {', '.join(sorted(unknown))}: not a field of an order")
        peer = data.pop("peer", None)
        return cls(**data, peer=None if peer is None else Peer.from_data(peer))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of an order: times, a wrong answer, or an error."""

    seconds: tuple[float, ...] = ()
    """The time of each repeat; none when the answer was wrong, because a wrong answer has no time."""
    error: str = ""
    correct: bool | None = None
    """None where the micro-benchmark does not check its answer, or has given none."""
    digest: str = ""
    """Hexadecimal, of the numbers that were computed."""

    def to_json(self) -> str:
        """The answer as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Answer:
        """Read an answer. Raises ValueError."""
        data: Any = parse_json(line, "answer", MESSAGE_LIMITS)
        if not isinstance(data, dict) or set(data) != set(cls.__dataclass_fields__):
            raise ValueError(f"the answer of the child is not one: {line!r:.80}")
        return cls(**{**data, "seconds": tuple(data["seconds"])})


def _is_folder(text: object) -> bool:
    return isinstance(text, str) and (not text or text.startswith("/"))
