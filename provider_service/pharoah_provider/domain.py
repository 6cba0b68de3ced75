"""Nodes, runs, reports and incidents as types. Nothing here knows SQL, protobuf or gRPC."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pharoah_learning.release import identity
from pharoah_protocol.incident_states import QUIET, IncidentState
from pharoah_protocol.vocabulary import Attribution
from pharoah_protocol.windows import MEMORY_RATIO, STEP_RATIO, Window

BESIDE_JOB = " beside a job"
"""The part of an incident's evidence that only the tenant of that job may read."""


@dataclass(frozen=True)
class Node:
    """A node as its agent describes it."""

    node: str
    ticket_key: bytes
    boot_id: str
    server_facts: tuple[str, ...]
    device_facts: tuple[str, ...]
    cpus: tuple[int, ...]
    version: str = ""

    @property
    def context_id(self) -> str:
        return identity(self.server_facts)

    @property
    def device_id(self) -> str:
        return identity(self.device_facts)


@dataclass(frozen=True)
class Run:
    """One attempt of a run."""

    run_id: bytes
    tenant: str
    node: str
    attempt: int
    ranks: int
    beside_job: bool
    limit_seconds: float
    job_id: bytes = b""
    """16 random bytes that all runs of one job share; empty when the tenant sent none."""
    joined_at: float = 0.0
    """Unix seconds."""


@dataclass(frozen=True)
class Report:
    """One window of one rank, relative to the run's own baseline."""

    row_number: int
    rank: int
    ended_at: float
    span_seconds: float
    step_ratio: float
    memory_ratio: float

    @property
    def window(self) -> Window:
        """The report as learning and scoring see it."""
        return Window(at_seconds=self.ended_at, values={STEP_RATIO: self.step_ratio, MEMORY_RATIO: self.memory_ratio})


class ResourceKind(StrEnum):
    """What can have an incident."""

    NODE = "node"


class IncidentKind(StrEnum):
    """What is wrong with the resource."""

    SLOW = "slow"
    """Steps on it take longer than the run's own baseline."""
    LOST = "lost"
    """A run on it and its agent vanished without a word."""


@dataclass(frozen=True)
class Resource:
    """One thing that can have an incident."""

    kind: ResourceKind
    name: str

    @classmethod
    def node(cls, name: str) -> Resource:
        return cls(ResourceKind.NODE, name)


@dataclass(frozen=True)
class Transition:
    """One change of an incident; the newest one of an incident is what is known of it now."""

    incident_id: str
    resource: Resource
    kind: IncidentKind
    state: IncidentState
    raised_by: bytes
    """The run under which it was suspected."""
    what: str
    evidence: str
    since: float
    """Unix seconds at which it began."""
    changed_at: float
    """Unix seconds of this change."""
    step_ratio: float
    """Step time of the run that raised it, over its own baseline."""

    @property
    def fault_domain(self) -> Attribution:
        """Who is likely at fault, as far as it is validated."""
        return Attribution.NODE if self.state.is_reported else Attribution.UNKNOWN

    def seen_by(self, run_id: bytes) -> Transition:
        """What a run may read of it: how the job of the run that raised it did is for that run alone."""
        return self if run_id == self.raised_by else self.public()

    def public(self) -> Transition:
        """What everybody may read who comes to the resource: nothing about any job."""
        what = "micro-benchmarks found this node slow" if self.kind is IncidentKind.SLOW else "this node was lost"
        return replace(self, what=what, evidence=self.evidence.replace(BESIDE_JOB, ""), step_ratio=1.0)


@dataclass(frozen=True)
class NodeState:
    """What is validated of a node, for its own agent and for offers: an open state that is reported, or `quiet`."""

    state: IncidentState = QUIET
    since: float = 0.0
    """Unix seconds; 0 while nothing is known against the node."""
    evidence: str = ""
