"""A signal of a node: one thing that an agent reads again and again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection

TROUBLE_UNIT = "1 while there is trouble, else 0"
"""The unit of every signal that leaves the node. When a job computes, waits for files or pauses says which job it is
(`python -m evaluation privacy`), so amounts, and how busy processors and disks are, stay on the node."""
WIDE_BITS, NARROW_BITS = 64, 32
"""Widths of the counters of kernels and drivers."""
SHORTEST_PERIOD_SECONDS, MAX_PERIOD_SECONDS = 1.0, 60.0
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NOT_IN_A_DEVICE = re.compile(r"[^a-z0-9_.-]+")
_MAX_DEVICE_LENGTH = 63
"""Characters of a device's name (`pharoah_protocol.telemetry_samples` takes no longer one)."""


class NotOnThisNode(Exception):
    """The node does not have what a signal reads. The text is the reason, for an operator."""


@dataclass(frozen=True)
class Reading:
    """What one device shows now; an empty `device` is the node itself."""

    value: float
    """A counter gives the raw count, as an int, because a float is exact up to 2^53 only."""
    device: str = ""
    parts: int = 1
    """How many counts the value is the sum of. A sum of fewer, as of the cores that are not switched off, is another
    counter."""


@dataclass(frozen=True, kw_only=True)
class AgentSignal:
    """One entry of the registry. Raises ValueError for a field that cannot be."""

    name: str
    measures: str
    """What it measures, in a few words."""
    unit: str
    worse: WorseDirection
    resource: Resource
    """Which resource of the node is in trouble when the signal becomes worse."""
    kind: SignalKind
    """What `read` gives: the raw count of a counter, or a level. Whoever reads makes increments of the count
    (`agent.counter_increments`)."""
    leaves_node: bool
    """Whether the provider gets it of any node. What does not leave is read while a cell of the provider itself runs,
    and comes with the result of that cell."""
    read: Callable[[], Iterable[Reading]]
    """One reading per device that has it. A device that cannot be read has no reading. Raises NotOnThisNode where the
    node has no such device."""
    counter_bits: int = WIDE_BITS
    """The width at which a counter begins again; without meaning for a gauge."""
    used_share: bool = False
    """Whether it is the share of a device's memory that is in use: a job is warned before that is 1."""
    period_seconds: float = SHORTEST_PERIOD_SECONDS
    """How often the agent's buffer reads it. What changes slowly, or costs many files, is read less often."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name: {self.name!r} is not a lower-case name with underscores")
        if not self.measures or not self.unit:
            raise ValueError(f"{self.name}: measures and unit must not be empty")
        if self.leaves_node and (self.unit != TROUBLE_UNIT or self.kind is not SignalKind.GAUGE):
            raise ValueError(f"{self.name}: a signal that leaves the node is a gauge with the unit {TROUBLE_UNIT!r}")
        for field, kind in (("worse", WorseDirection), ("resource", Resource), ("kind", SignalKind)):
            if not isinstance(getattr(self, field), kind):
                raise ValueError(f"{self.name}: {field}: {getattr(self, field)!r} is not a {kind.__name__}")
        if self.counter_bits not in (NARROW_BITS, WIDE_BITS):
            raise ValueError(f"{self.name}: counter_bits: {self.counter_bits} is neither {NARROW_BITS} nor {WIDE_BITS}")
        if self.used_share and (self.resource is not Resource.MEMORY_CAPACITY or self.kind is not SignalKind.GAUGE):
            raise ValueError(
                f"{self.name}: used_share: only a gauge of the resource memory_capacity can be such a share"
            )
        if not SHORTEST_PERIOD_SECONDS <= self.period_seconds <= MAX_PERIOD_SECONDS:
            raise ValueError(
                f"{self.name}: period_seconds: {self.period_seconds} is not from {SHORTEST_PERIOD_SECONDS:g} to "
                f"{MAX_PERIOD_SECONDS:g}"
            )


def device_name(text: str) -> str:
    """The name of a device as readings have it: lower case, with `-` for every other character."""
    return _NOT_IN_A_DEVICE.sub("-", text.lower()).strip("-")[:_MAX_DEVICE_LENGTH] or "unnamed"
