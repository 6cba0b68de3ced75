"""What learners learn from: trials, degraded runs, results of micro-benchmarks and outcomes that tenants share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pharoah_protocol.vocabulary import DeviceKind, Fault, Outcome
from pharoah_protocol.windows import Window


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One cell as learning sees it."""

    workload: str
    settings: dict[str, object]
    context_id: str
    device_id: str
    outcome: Outcome
    step_seconds: tuple[float, ...]
    fingerprint: str
    device: DeviceKind = DeviceKind.CPU
    """What the cell ran on. Trials that predate the field ran on the CPU."""
    context_device: DeviceKind = DeviceKind.CPU
    """What the facts of its context name: a context with a GPU is a context of that GPU."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Trial:
        """Read what `asdict` gave, also as it comes back from JSON. Raises KeyError, TypeError or ValueError."""
        return cls(
            **{
                **data,
                "outcome": Outcome(data["outcome"]),
                "step_seconds": tuple(data["step_seconds"]),
                "device": DeviceKind(data.get("device", DeviceKind.CPU)),
                "context_device": DeviceKind(data.get("context_device", DeviceKind.CPU)),
            }
        )


def on_their_device(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that ran on the device that their context names.

    The others say nothing about it: a cell on the CPU of a node with a GPU would otherwise answer questions about that
    GPU.
    """
    return [trial for trial in trials if trial.device is trial.context_device]


@dataclass(frozen=True)
class DegradedRun:
    """One run of a campaign that was degraded, or its control run."""

    kind: Fault
    windows: tuple[Window, ...]
    died: bool
    """Whether its process died."""


@dataclass(frozen=True)
class BenchmarkResult:
    """Result of one micro-benchmark on one node."""

    order_id: str
    node: str
    benchmark: str
    beside_job: bool
    started_at: float
    ended_at: float
    seconds: tuple[float, ...]
    error: str = ""


@dataclass(frozen=True)
class OutcomeReport:
    """How a run ended, as its tenant reported it under the pseudonym of the job."""

    run_id: bytes
    period: int
    name: str
    """Hexadecimal."""
    organisation: str
    context_id: str
    failed: bool


def process_died(outcome: str) -> bool:
    """Whether an outcome of a cell means that its process died, which is the failure event of the survival model."""
    return outcome in (Outcome.MEMORY, Outcome.CRASH)
