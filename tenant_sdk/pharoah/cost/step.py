"""What one training step costs, wherever it runs: its operators, its collectives and the life of its memory."""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple


class Operation(NamedTuple):
    """Equal operators of one step, counted together."""

    phase: str
    name: str
    """As in the vocabulary: `aten.mm`."""
    dtype: str
    flops: int
    """Floating-point operations of one, a multiplication and an addition being two."""
    moved: int
    """Bytes read and written by one."""
    times: int


class Transfer(NamedTuple):
    """Equal collectives of one step, counted together."""

    phase: str
    letter: str
    moved: int
    """Bytes of the larger side on this rank: what an all-gather receives, what a reduce-scatter starts from."""
    ranks: int
    """Size of the group."""
    times: int


PARAMETER, GRADIENT, STATE, ACTIVATION, KERNEL, OTHER = "pgsak-"
"""Roles of allocations. Activations are what a forward pass leaves for the backward pass; kernels' are no tensors."""


@dataclass(frozen=True)
class Memory:
    """Allocations of a script from its start to the end of its third step, in order.

    An event above zero is an allocation of so many bytes; one below frees allocation number `-event`, counted from 1.
    """

    events: array[int]
    roles: str
    """One letter for each allocation."""


@dataclass(frozen=True)
class StepCost:
    operations: tuple[Operation, ...]
    transfers: tuple[Transfer, ...]
    memory: Memory
    process_bytes: int = 0
    """Data segment of the dry run's own process: interpreter, libraries, what the script keeps besides tensors."""
    uncounted: tuple[str, ...] = ()
    """Names of operators that may compute much and have no known formula."""

    @property
    def flops(self) -> int:
        """Of the whole step."""
        return sum(row.flops * row.times for row in self.operations)

    @property
    def moved(self) -> int:
        """Bytes read and written by the whole step, if no operator finds its input in a cache."""
        return sum(row.moved * row.times for row in self.operations)

    @property
    def traffic(self) -> int:
        """Bytes of all collectives on this rank."""
        return sum(row.moved * row.times for row in self.transfers)

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "memory": {**asdict(self.memory), "events": _packed(self.memory.events)}})

    @classmethod
    def from_json(cls, text: str | bytes) -> StepCost:
        """Read what `to_json` wrote, in the same release."""
        data = json.loads(text)
        memory = data["memory"]
        return cls(
            operations=tuple(Operation(*row) for row in data["operations"]),
            transfers=tuple(Transfer(*row) for row in data["transfers"]),
            memory=Memory(_unpacked(memory["events"]), memory["roles"]),
            process_bytes=data["process_bytes"],
            uncounted=tuple(data["uncounted"]),
        )


def _packed(events: Sequence[int]) -> str:
    return base64.b64encode(zlib.compress(array("q", events).tobytes(), 1)).decode()


def _unpacked(text: str) -> array[int]:
    events = array("q")
    events.frombytes(zlib.decompress(base64.b64decode(text)))
    return events
