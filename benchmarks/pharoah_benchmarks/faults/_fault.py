"""The description of a fault."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pharoah_benchmarks.micro import Resource
from pharoah_protocol.bounds import is_number
from pharoah_protocol.vocabulary import NO_FAULT, DeviceKind

if TYPE_CHECKING:
    from torch import nn

_NAME = re.compile("[a-z][a-z0-9_]{0,63}")


class FaultError(Exception):
    """A fault that cannot begin here; the message states what is missing."""


@dataclass(frozen=True, kw_only=True)
class Dose:
    """How much of a fault there can be. Raises ValueError for a range without values."""

    unit: str
    """What 1 means, in words."""
    least: float
    most: float
    examples: tuple[float, ...]
    """Doses that a cell of some seconds shows, the weakest first; evaluations use them."""
    whole: bool = False
    """Whether only whole numbers have a meaning."""

    def __post_init__(self) -> None:
        if not self.unit or not self.least <= self.most or not self.examples:
            raise ValueError("dose: unit, a range and examples are needed")
        for dose in self.examples:
            self.check(dose)

    def check(self, dose: object) -> None:
        """Raise ValueError unless this is a possible dose."""
        if not is_number(dose) or not self.least <= dose <= self.most:
            raise ValueError(f"{dose!r:.40} is not from {self.least:g} to {self.most:g} ({self.unit})")
        if self.whole and dose != int(dose):
            raise ValueError(f"{dose!r:.40} is not a whole number ({self.unit})")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When how much of a fault is there: nothing before the onset, then a line to the full dose."""

    dose: float
    onset_seconds: float
    """Since the cell began to train."""
    ramp_seconds: float
    """Time from nothing to the full dose; 0 is a step."""
    began: float
    """When the cell began to train, on the clock of `time.monotonic`, which all processes of a machine share."""

    def share(self, now: float | None = None) -> float:
        """The share of the dose that is in force, 0 to 1."""
        since = (time.monotonic() if now is None else now) - self.began - self.onset_seconds
        if since < 0:
            return 0.0
        return min(1.0, since / self.ramp_seconds) if self.ramp_seconds else 1.0

    def amount(self, now: float | None = None) -> float:
        """What a dose that is a rate has added up to since the onset: its integral over time, in units of the dose."""
        since = max(0.0, (time.monotonic() if now is None else now) - self.began - self.onset_seconds)
        in_ramp = min(since, self.ramp_seconds)
        growing = in_ramp * in_ramp / (2 * self.ramp_seconds) if self.ramp_seconds else 0.0
        return self.dose * (growing + since - in_ramp)


class Effect:
    """A fault inside the process of a rank while it trains. This one does nothing."""

    def before_step(self) -> None:
        """The time that this takes is a part of the step."""

    def after_step(self) -> None:
        """The time that this takes is a part of the step."""

    def end(self) -> None:
        """The cell has ended, in whatever way. What the fault has started ends here."""


NOTHING = Effect()


class Between(Protocol):
    """A fault between the ranks of a cell, in the process that starts them."""

    def enter(self, rank: int) -> str:
        """On each rank before it joins the others: the network interface that it talks over."""
        ...

    def begin(self, schedule: Schedule) -> None:
        """On one rank, when it begins to train."""
        ...

    def end(self) -> None:
        """All ranks have ended."""
        ...


@dataclass(frozen=True, kw_only=True)
class Place:
    """The rank that a fault acts on."""

    schedule: Schedule
    pid: int
    folder: Path
    """The scratch folder of the cell."""
    limit_seconds: float
    """The longest time that the cell may take."""
    seed: int = 0
    """Draws what a fault leaves open, such as which parameter it changes."""
    model: nn.Module | None = None
    """Only inside the process of the rank."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault. Raises ValueError that names the field that is wrong."""

    name: str
    """Stored with every result, so it never changes its meaning."""
    help: str
    """What really happens, and what does not."""
    resource: Resource
    dose: Dose
    inside: Callable[[Place], Effect] | None = None
    """Called in the process of the rank, after its model is there. Raises FaultError."""
    beside: Callable[[Place], None] | None = None
    """Runs in a process of its own beside the rank, which is killed when the cell ends."""
    between: Callable[[int, int], Between] | None = None
    """Called with the number of ranks, and the rank that the fault acts on, before the ranks are started."""
    least_ranks: int = 1
    device: DeviceKind | None = None
    """The only device on which there is such a fault."""
    room_bytes: int = 0
    """How far a process may grow when its node has no memory limit; 0 is as far as it likes."""
    needs: str = ""
    """What else it needs of a node, in words: a device, or a right."""

    def __post_init__(self) -> None:
        problems = {
            "name": not _NAME.fullmatch(self.name) or self.name == NO_FAULT,
            "help": not self.help,
            "resource": not isinstance(self.resource, Resource),
            "dose": not isinstance(self.dose, Dose),
            "least_ranks": self.least_ranks < 1,
            "between": not (self.inside or self.beside or self.between),
        }
        for field, wrong in problems.items():
            if wrong:
                raise ValueError(f"fault {self.name!r}: {field}: {getattr(self, field)!r} is invalid")

    def lacks(self, device: DeviceKind, ranks: int) -> str:
        """What a cell on this device with so many ranks lacks, in words; empty when nothing."""
        if self.device is not None and device is not self.device:
            return "it needs a GPU" if self.device is DeviceKind.CUDA else f"it needs a cell on the {self.device}"
        return f"it needs a cell with {self.least_ranks} ranks or more" if ranks < self.least_ranks else ""
