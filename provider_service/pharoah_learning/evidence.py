"""What learners learn from: trials, degraded runs, results of micro-benchmarks and outcomes that tenants share."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from pharoah_learning.limits import Limit
from pharoah_protocol.telemetry_samples import TelemetrySample
from pharoah_protocol.vocabulary import Attribution, DeviceKind, EndState, Outcome
from pharoah_protocol.windows import Window
from pharoah_system.text import sanitize_text

MAX_NAME_LENGTH = 64
"""Characters of the name of a node or an organisation that are printed."""


class EvidenceKind(StrEnum):
    """What learning reads."""

    TRIAL = "trial"
    DEGRADED_RUN = "degraded run"
    BENCHMARK_RESULT = "benchmark result"
    OUTCOME_REPORT = "outcome report"
    REVEALED_RUN = "revealed run"
    ROW = "row"
    """A learned row, which could not be sealed."""


class LeftOutGroup(NamedTuple):
    """Pieces of evidence that learning left out together."""

    kind: EvidenceKind
    node: str
    """The node that they came from, or what else they have in common, such as an organisation."""
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """What learning could not use, and why: evidence that cannot be used neither ends learning nor vanishes unnamed."""

    counts: Counter[LeftOutGroup] = field(default_factory=Counter)

    def add(self, kind: EvidenceKind, node: object, reason: str) -> None:
        """Count a piece that is left out; the reason is a short text without a full stop. Evidence that cannot be used
        may have anything in place of the name of its node."""
        name = sanitize_text(node, MAX_NAME_LENGTH) if isinstance(node, str) else ""
        self.counts[LeftOutGroup(kind=kind, node=name, reason=reason)] += 1

    def lines(self) -> list[str]:
        """One line for each kind of evidence, node and reason."""
        return [
            f"left out: {count} {group.kind}{'s' * (count > 1)} of {group.node or 'unknown origin'}: {group.reason}"
            for group, count in sorted(self.counts.items())
        ]


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
    """What the agent of the node states about the job that the cell trained; `usable_trials` replaces it by what the
    provider knows. Empty where the cell failed before it had a model."""
    node: str = ""
    """Name of the node, which is the identity of its agent."""
    own_fingerprints: tuple[str, ...] = ()
    """What the provider's own dry runs of the same workload and settings gave, one for each release of its software,
    oldest first; none when it could not dry-run the cell."""
    trial_id: str = ""
    ran_at: float = 0.0
    """Unix seconds."""
    device: DeviceKind = DeviceKind.CPU
    """What the cell ran on. Trials that predate the field ran on the CPU."""
    context_device: DeviceKind = DeviceKind.CPU
    """What the facts of its context name: a context with a GPU is a context of that GPU."""
    block: str = ""
    """The block of its campaign: cells that ran on one node, one after another. Empty before blocks were recorded."""
    losses: tuple[float, ...] = ()
    """What each step computed. Empty before losses were recorded."""
    seed: int = 0
    """Trials of one seed have drawn the same weights and the same data."""
    versions: dict[str, str] = field(default_factory=dict)
    """Software to version, read back in the environment of the cell."""
    facts: tuple[str, ...] = ()
    """The facts of its node as it ran, `name=value`. None before they were kept: then its context is what it was."""
    limit: Limit | None = None
    """The limit of its node that its failure names (`limits.limit_named`)."""

    @property
    def content(self) -> str:
        """Workload and settings, as a text that is equal for equal contents (`Cell.content`)."""
        return json.dumps([self.workload, self.settings], sort_keys=True)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Trial:
        """Read what `asdict` gave, also as it comes back from JSON. Raises KeyError, TypeError or ValueError."""
        return cls(
            **{
                **data,
                "outcome": Outcome(data["outcome"]),
                "step_seconds": tuple(data["step_seconds"]),
                "own_fingerprints": tuple(data.get("own_fingerprints", ())),
                "losses": tuple(data.get("losses", ())),
                "facts": tuple(data.get("facts", ())),
                "device": DeviceKind(data.get("device", DeviceKind.CPU)),
                "context_device": DeviceKind(data.get("context_device", DeviceKind.CPU)),
                "limit": Limit(data["limit"]) if data.get("limit") else None,
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

    fault: str
    """The name of what was done to it; of a plug-in that is gone, too."""
    windows: tuple[Window, ...]
    died: bool
    """Whether its process died."""
    node: str = ""
    """The node it ran on."""
    outcome: Outcome = Outcome.OK
    dose: float = 0.0
    """In the unit of the fault; 0 for runs that predate doses."""
    onset_seconds: float = 0.0
    """When the fault began, in the time of the windows."""
    telemetry: tuple[TelemetrySample, ...] = ()
    """What was measured meanwhile, in times relative to the onset."""
    archetype: str = ""
    """What it trained, as its agent states it; empty where that is not known."""


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
    """None for a wrong answer, which is an outcome of its own."""
    error: str = ""
    correct: bool | None = None
    """Whether the answer was right; None where the micro-benchmark does not check it."""
    digest: str = ""
    """Hexadecimal, of the numbers that were computed; the same on healthy nodes of one class."""


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
    facts: tuple[str, ...] = ()
    """The facts of the node; none before they were kept."""


@dataclass(frozen=True, kw_only=True)
class RevealedRun:
    """A run that has ended, and that its tenant has revealed in plain words."""

    organisation: str
    fingerprint: str
    """The tenant's word: nobody can check it."""
    facts: tuple[str, ...]
    """The facts of its node, as `name=value`."""
    ranks: int
    """Processes on that node."""
    state: EndState
    attribution: Attribution
    ended_at: float
    """Unix seconds."""


COUNTED_STATES = (EndState.OK, EndState.FAILED)
"""End states that say something about the job and its node."""


def end_counts(state: EndState, attribution: Attribution) -> bool:
    """Whether the end of a run says something about its job that may be counted: what the user caused does not."""
    return state in COUNTED_STATES and attribution is not Attribution.USER


def process_died(outcome: str) -> bool:
    """Whether an outcome of a cell means that its process died, which is a failure of a degraded run."""
    return outcome in (Outcome.MEMORY, Outcome.CRASH)
