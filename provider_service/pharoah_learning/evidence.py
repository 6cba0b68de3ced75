"""What learners learn from: trials, degraded runs, benchmark results and outcomes that tenants share."""

from __future__ import annotations

from dataclasses import dataclass

from pharoah_protocol.vocabulary import Outcome
from pharoah_protocol.windows import Window


@dataclass(frozen=True)
class Trial:
    """One cell as learning sees it."""

    workload: str
    settings: dict[str, object]
    context_id: str
    device_id: str
    outcome: str
    step_seconds: tuple[float, ...]
    fingerprint: str


@dataclass(frozen=True)
class DegradedRun:
    """One run of a campaign that was degraded, or its control run."""

    kind: str
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
    """How a run ended, told by its tenant under the job's name."""

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
