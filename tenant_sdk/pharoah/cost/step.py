"""What one training step costs on any machine: its operators, its collectives and the lifetimes of its memory."""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum, auto
from typing import NamedTuple

from pharoah_system.bounded_reading import JsonLimits, parse_json


class Operation(NamedTuple):
    """Equal operators of one step, counted together."""

    phase: str
    name: str
    """As in the vocabulary: `aten.mm`."""
    dtype: str
    flops: int
    """Floating-point operations of one call. A multiplication and an addition are two."""
    moved: int
    """Bytes that one call reads and writes."""
    times: int


class Transfer(NamedTuple):
    """Equal collectives of one step, counted together."""

    phase: str
    operator_class: str
    moved: int
    """Bytes of the larger side on this rank: what an all-gather receives, what a reduce-scatter starts from."""
    ranks: int
    """Size of the group."""
    times: int


REPORT_LIMITS = JsonLimits(max_bytes=32 << 20, growth=16)
"""What the child of a dry run reports. It runs the user's script, which can write anything; a result has some MB."""
PARAMETER, GRADIENT, STATE, ACTIVATION, KERNEL, OTHER = "pgsak-"
"""Roles of allocations. Activations are kept for the backward pass; kernels allocate memory outside of tensors."""


class EventKind(Enum):
    """What happens to memory."""

    ALLOCATE = auto()
    FREE = auto()


class MemoryEvent(NamedTuple):
    """One allocation, or the end of one."""

    kind: EventKind
    number: int
    """Bytes of an allocation; the number of the allocation that is freed, counted from 1."""

    @property
    def coded(self) -> int:
        """The event as `Memory.events` stores it."""
        return self.number if self.kind is EventKind.ALLOCATE else -self.number


def decode(events: Iterable[int]) -> Iterator[MemoryEvent]:
    """Events as `Memory.events` stores them."""
    for event in events:
        yield MemoryEvent(EventKind.ALLOCATE, event) if event >= 0 else MemoryEvent(EventKind.FREE, -event)


@dataclass(frozen=True)
class Memory:
    """The allocations of a script from its start to the end of its third step, in order."""

    events: array[int]
    """Codes of `MemoryEvent`, since a job has millions: the bytes of an allocation, or minus the number of the
    allocation that is freed."""
    roles: str
    """One character for each allocation."""


@dataclass(frozen=True)
class StepCost:
    """The operators, the collectives and the memory of one training step."""

    operations: tuple[Operation, ...]
    transfers: tuple[Transfer, ...]
    memory: Memory
    process_bytes: int = 0
    """Data segment of the dry run: the interpreter, libraries, and what the script keeps besides tensors."""
    uncounted: tuple[str, ...] = ()
    """Names of operators that may compute much and whose formula is not known."""

    @property
    def flops(self) -> int:
        """Floating-point operations of the whole step."""
        return sum(row.flops * row.times for row in self.operations)

    @property
    def moved(self) -> int:
        """Bytes that the whole step reads and writes when no operator finds its input in a cache."""
        return sum(row.moved * row.times for row in self.operations)

    @property
    def traffic(self) -> int:
        """Bytes of all collectives on this rank."""
        return sum(row.moved * row.times for row in self.transfers)

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "memory": {**asdict(self.memory), "events": _pack(self.memory.events)}})

    @classmethod
    def from_json(cls, text: str | bytes) -> StepCost:
        """Read what `to_json` wrote, in the same release."""
        data = parse_json(text, "cost", REPORT_LIMITS)
        memory = data["memory"]
        return cls(
            operations=tuple(Operation(*row) for row in data["operations"]),
            transfers=tuple(Transfer(*row) for row in data["transfers"]),
            memory=Memory(_unpack(memory["events"]), memory["roles"]),
            process_bytes=data["process_bytes"],
            uncounted=tuple(data["uncounted"]),
        )


def _pack(events: Sequence[int]) -> str:
    return base64.b64encode(zlib.compress(array("q", events).tobytes(), 1)).decode()


def _unpack(text: str) -> array[int]:
    events = array("q")
    events.frombytes(zlib.decompress(base64.b64decode(text)))
    return events
