"""What the sidecar watches on its own machine: detectors, what they see, and what they find.

A detector is one file of `pharoah.local_alerts`, or an entry point of the group `pharoah.detectors` in another
distribution. It sees exact step times and what the kernel shows of the job's processes; nothing of it leaves the
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

from pharoah.local_alerts._readings import MachineReading, ProcessReading
from pharoah_protocol.agent_messages import SignalReading
from pharoah_protocol.registry import Registry
from pharoah_protocol.vocabulary import Attribution, Resource

GROUP = "pharoah.detectors"


@dataclass(frozen=True, kw_only=True)
class NodeForecast:
    """How probably this node fails, by the hazard model of the provider."""

    probability: float
    """The probability of a failure within so many hours."""
    hours: int
    resource: Resource | None
    """What it most probably fails of."""
    alarming: bool
    """Whether the risk is above that which healthy nodes have."""
    failures: int
    nodes: int
    """From how many failures of how many nodes the model was learned."""


@dataclass(frozen=True, kw_only=True)
class View:
    """What is seen of a job in one look, about once a second."""

    at: float
    """Seconds of the monotonic clock."""
    unix: float
    steps: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """Seconds of the steps of each rank that ended since the look before."""
    processes: Mapping[int, ProcessReading] = field(default_factory=dict)
    """By rank, of those that live on this machine."""
    machine: MachineReading = field(default_factory=MachineReading)
    distributed: bool = False
    """Whether the job has several ranks, here or elsewhere."""
    measuring: bool = False
    """Whether the provider runs micro-benchmarks beside the job now."""
    signals: Sequence[SignalReading] = ()
    """What the agent of the node shows of the node and of the job's devices; empty where no agent answers."""
    expected_step_seconds: float = 0.0
    """What a step should take on this node, by the dry run; 0 where that is not known."""
    forecast: NodeForecast | None = None
    """None where no model holds or no agent answers."""
    lateness: Mapping[int, float] = field(default_factory=dict)
    """By rank: how many seconds after the first one it calls a collective, the median of the last ones."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What a detector finds to hold now. It holds until a later look does not give it again."""

    key: str
    """Names what it is about; one alert is open for a key at a time."""
    resource: Resource | None
    """What is short or sick; None where that is not known."""
    fault_domain: Attribution
    what: str
    where: str
    likely: str
    """The likely cause."""
    action: str
    """What to do."""
    evidence: str
    since: float
    """Unix seconds at which it began, as far as is known."""
    step_ratio: float = 1.0
    failure_from: float = 0.0
    failure_until: float = 0.0
    """Unix seconds between which the job fails if nothing changes, an interval of 95 %; 0 when that is not known."""
    checkpoint: bool = False
    """Whether the job should save a checkpoint now."""
    validation: bool = False
    """Whether micro-benchmarks on the node may show its cause, and the job itself is none. What a job does to itself,
    and what the agent of the node measures anyway, must not become a question for the provider."""


class Watching(Protocol):
    """One detector at work on one job."""

    @property
    def wants_lateness(self) -> bool:
        """Whether it would judge better if the next views had the lateness of the ranks."""
        ...

    def look(self, view: View) -> Iterable[Condition]:
        """What holds now. Called with every view, in order."""
        ...


@dataclass(frozen=True)
class Detector:
    """One entry of the registry."""

    name: str
    help: str
    """What it finds, and by what."""
    start: Callable[[], Watching]
    of_machine: bool = False
    """Whether it looks at the machine alone, so that a job whose ranks start again changes nothing for it."""
    judges_steps: bool = False
    """Whether it takes a step for all of the time between two ends of steps. Such detectors are left out of a job that
    serves, which waits for its requests between its steps."""


@cache
def detectors() -> Registry[Detector]:
    """All detectors; read when the first run starts."""
    return Registry(Detector, "pharoah.local_alerts", GROUP)
