"""A signal of a node: one thing that an agent reads again and again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass

from pharoah_protocol.vocabulary import Resource, WorseDirection

TROUBLE_UNIT = "1 while there is trouble, else 0"
"""The unit of every signal that leaves the node. When a job computes, waits for files or pauses says which job it is
(`python -m evaluation privacy`), so amounts, and how busy processors and disks are, stay on the node."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True)
class Reading:
    """What one device shows now; an empty `device` is the node itself."""

    value: float
    device: str = ""


@dataclass(frozen=True)
class AgentSignal:
    """One entry of the registry. Raises ValueError for a field that cannot be."""

    name: str
    measures: str
    """What it measures, in a few words."""
    unit: str
    worse: WorseDirection
    leaves_node: bool
    """Whether the provider gets it of any node. What does not leave is read while a cell of the provider itself runs,
    and comes with the result of that cell."""
    read: Callable[[], Iterable[Reading]]
    """One reading per device that has it. A device that cannot be read has no reading."""
    _: KW_ONLY
    resource: Resource
    """What is short or sick when its value is bad."""

    @property
    def trouble(self) -> bool:
        """Whether its values state trouble, not an amount."""
        return self.unit == TROUBLE_UNIT

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name: {self.name!r} is not a lower-case name with underscores")
        if not self.measures or not self.unit:
            raise ValueError(f"{self.name}: measures and unit must not be empty")
        if self.leaves_node and self.unit != TROUBLE_UNIT:
            raise ValueError(f"{self.name}: the unit of a signal that leaves the node is {TROUBLE_UNIT!r}")
