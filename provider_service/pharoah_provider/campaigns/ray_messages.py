"""Messages between the provider and its Ray driver: JSON lines, one message each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from pharoah_system.bounded_reading import parse_json


@dataclass(frozen=True)
class CellRequest:
    """To the driver: run a cell on a worker."""

    request_id: int
    worker: str
    cell: str
    """As JSON."""
    limit_seconds: float
    """What the worker may take, beside the start of a process."""


@dataclass(frozen=True)
class CellDone:
    """From the driver: what a worker has answered."""

    request_id: int
    result: str
    """As JSON, not yet checked."""


@dataclass(frozen=True)
class CellLost:
    """From the driver: the worker of a request is gone, or was never there."""

    request_id: int
    reason: str


@dataclass(frozen=True)
class Workers:
    """From the driver: all workers that can run a cell now."""

    names: list[str]


@dataclass(frozen=True)
class ClusterFailed:
    """From the driver, as its last message: it cannot work with the cluster."""

    reason: str


RayMessage = CellRequest | CellDone | CellLost | Workers | ClusterFailed
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (CellRequest, CellDone, CellLost, Workers, ClusterFailed)}


def to_line(message: RayMessage) -> bytes:
    """One line of JSON."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)}).encode() + b"\n"


def from_line(line: bytes | str) -> RayMessage:
    """Read what `to_line` wrote. Raises ValueError."""
    try:
        data = parse_json(line, "message of the Ray driver")
        message: RayMessage = _KINDS[data.pop("kind")](**data)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a message of the Ray driver: {error!r}") from None
    return message
