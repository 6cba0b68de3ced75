"""Nodes, runs, reports and incidents as types. Nothing here knows SQL, protobuf or gRPC."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pharoah_learning.context_rule import identity
from pharoah_protocol.incident_states import QUIET, IncidentState
from pharoah_protocol.vocabulary import Attribution, Purpose
from pharoah_protocol.windows import MEMORY_RATIO, STEP_RATIO, Window

BESIDE_JOB = " beside a job"
"""The part of an incident's evidence that only the tenant of that job may read."""
NOT_IDLE = "not idle"
"""The error by which an agent refuses micro-benchmarks on a node that the provider takes for idle."""


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
    host: str = ""
    """The physical machine, where the operator names it: virtual machines of one host have a kernel each."""

    @property
    def host_id(self) -> str:
        """The machine whose memory bandwidth and caches the node has: its host, or else the boot of its kernel."""
        return self.host or self.boot_id

    def shares_host(self, other: Node) -> bool:
        """Whether what runs on one of the two nodes can be felt on the other: memory bandwidth, caches, power."""
        return self.host_id == other.host_id

    def shares_cores(self, other: Node) -> bool:
        """Whether two nodes are guests on the same cores of one host: never measured at the same time."""
        return self.shares_host(other) and bool(set(self.cpus) & set(other.cpus))

    @property
    def facts_id(self) -> str:
        """The name of the set of all facts: the context under a rule that ignores none. Empty for a node without facts,
        which is no node of the fleet."""
        return identity(self.server_facts) if self.server_facts else ""

    @property
    def device_id(self) -> str:
        """Empty for a node without facts."""
        return identity(self.device_facts) if self.device_facts else ""


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
    probe_key: bytes = b""
    """The public key with which its sidecar signs results of micro-benchmarks that it runs itself; empty when the
    tenant has not agreed to that."""

    @property
    def organisation(self) -> str:
        """Whose run it is where many accounts must not count as many."""
        return organisation_of(self.tenant)


def organisation_of(tenant: str) -> str:
    """The first part of a tenant's name."""
    return tenant.partition("/")[0]


class Found(StrEnum):
    """What a round of micro-benchmarks has shown of the node that it was for."""

    NOTHING = "nothing"
    """It measured a level, or it could not be finished."""
    HEALTHY = "healthy"
    SLOW = "slow"


@dataclass(frozen=True)
class MeasuredOrder:
    """One order for micro-benchmarks that was sent to a node, whatever came of it."""

    organisation: str
    """For whose run it was ordered."""
    suspected: str
    """The node that the round was about."""
    node: str
    """The node that was measured: the same one, or a peer."""
    purpose: Purpose
    began_at: float
    ended_at: float
    """Unix seconds."""
    looked_slow: bool
    """Whether the round looked slow when the order was sent."""
    found: Found
    """What its round has found; `nothing` for all orders of a round but one."""

    @property
    def peer(self) -> bool:
        """Whether the node was measured for the sake of another one."""
        return self.node != self.suspected


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
    AGENT = "agent"
    """The agent of a node: the resource has the name of the node."""


class IncidentKind(StrEnum):
    """What is wrong with the resource."""

    SLOW = "slow"
    """Steps on it take longer than the run's own baseline."""
    LOST = "lost"
    """A run on it and its agent vanished without a word."""
    AGENT_LOST = "agent_lost"
    """The agent of the node vanished while a run was there."""


@dataclass(frozen=True)
class Resource:
    """One thing that can have an incident."""

    kind: ResourceKind
    name: str

    @classmethod
    def node(cls, name: str) -> Resource:
        return cls(ResourceKind.NODE, name)

    @classmethod
    def agent(cls, node: str) -> Resource:
        """The agent of a node."""
        return cls(ResourceKind.AGENT, node)


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
    established: bool = True
    """Whether more than the runs of one organisation speak against the node; until then only the run that raised the
    incident hears of it."""

    @property
    def fault_domain(self) -> Attribution:
        """Who is likely at fault, as far as it is validated."""
        return Attribution.NODE if self.state.is_reported else Attribution.UNKNOWN

    def changed(self, state: IncidentState, at: float, evidence: str) -> Transition:
        """The next change of the same incident, at a unix time."""
        return replace(self, state=state, changed_at=at, evidence=evidence)

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
