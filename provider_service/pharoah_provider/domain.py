"""Nodes, runs, reports and incidents as types. Nothing here knows SQL, protobuf or gRPC."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pharoah_learning.context_rule import identity
from pharoah_protocol.incident_states import CONFIRMED, QUIET, IncidentState
from pharoah_protocol.vocabulary import Attribution, NodeAction, Purpose, Resource
from pharoah_protocol.windows import MEMORY_RATIO, STEP_RATIO, Window

BESIDE_JOB = " beside a job"
"""The part of an incident's evidence that only the tenant of that job may read."""
NOT_IDLE = "not idle"
"""The error by which an agent refuses micro-benchmarks on a node that the provider takes for idle."""


PLACES = ("switch", "rack", "pod", "row", "room", "power")
"""Facts that name a place. An operator gives them (`pharoah-agent run --fact switch=s3`)."""


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
    places: tuple[str, ...] = ()
    """What it shares with other nodes because of where it stands, such as `switch=s3`. Places make no context."""
    peer_address: str = ""
    """HOST:PORT where another node reaches it while both measure together; empty for nowhere."""

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


class SubjectKind(StrEnum):
    """What can have an incident."""

    NODE = "node"
    AGENT = "agent"
    """The agent of a node: the subject has the name of the node."""
    CHECK = "check"
    """What checks of the idle node show: the subject has the name of the node."""
    SHARED = "shared"
    """What several nodes have in common, such as `switch=s3`, or one job."""


class IncidentKind(StrEnum):
    """What is wrong with the subject."""

    SLOW = "slow"
    """Steps on it take longer than the run's own baseline."""
    LOST = "lost"
    """A run on it and its agent vanished without a word."""
    AGENT_LOST = "agent_lost"
    """The agent of the node vanished while a run was there."""
    BELOW_FLEET = "below_fleet"
    """A micro-benchmark on the idle node is slower than on the healthy nodes of its context, or than it was before."""
    SHARED = "shared"
    """Several nodes that have something in common became slow at once."""
    WRONG_ANSWER = "wrong_answer"
    """A micro-benchmark on the idle node computes something wrong."""


@dataclass(frozen=True)
class Subject:
    """One thing that can have an incident."""

    kind: SubjectKind
    name: str

    @classmethod
    def node(cls, name: str) -> Subject:
        return cls(SubjectKind.NODE, name)

    @classmethod
    def agent(cls, node: str) -> Subject:
        """The agent of a node."""
        return cls(SubjectKind.AGENT, node)

    @classmethod
    def from_shared(cls, name: str) -> Subject:
        """What several nodes have in common."""
        return cls(SubjectKind.SHARED, name)

    @classmethod
    def check(cls, node: str) -> Subject:
        """What checks of an idle node show."""
        return cls(SubjectKind.CHECK, node)


@dataclass(frozen=True)
class Transition:
    """One change of an incident; the newest one of an incident is what is known of it now."""

    incident_id: str
    subject: Subject
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
    resource: Resource | None = None
    """What is short or sick, as far as micro-benchmarks have shown it."""

    @property
    def fault_domain(self) -> Attribution:
        """Who is likely at fault, as far as it is validated."""
        return Attribution.NODE if self.state.is_reported else Attribution.UNKNOWN

    def change(self, state: IncidentState, at: float, evidence: str) -> Transition:
        """The next change of the same incident, at a unix time."""
        return replace(self, state=state, changed_at=at, evidence=evidence)

    def redact_for(self, run_id: bytes) -> Transition:
        """What a run may read of it: how the job of the run that raised it did is for that run alone."""
        return self if run_id == self.raised_by else self.public()

    def public(self) -> Transition:
        """What everybody may read who comes to the subject: nothing about any job."""
        what = _PUBLIC.get(self.kind, self.what)
        return replace(self, what=what, evidence=self.evidence.replace(BESIDE_JOB, ""), step_ratio=1.0)


_PUBLIC = {
    IncidentKind.SLOW: "micro-benchmarks found this node slow",
    IncidentKind.LOST: "this node was lost",
    IncidentKind.AGENT_LOST: "this node was lost",
}
"""What is said in public of incidents that a run has raised. What a check has found is not about a run."""


class CheckResult(StrEnum):
    """What a check of an idle node has shown."""

    HEALTHY = "healthy"
    SLOWER = "slower"
    WRONG = "wrong"
    """The answer was wrong, or its numbers differ from those of nodes with the same facts."""
    UNDECIDED = "undecided"
    """There is too little to compare with, or nothing could be measured."""


@dataclass(frozen=True, kw_only=True)
class IdleCheck:
    """One check of an idle node."""

    node: str
    benchmark: str
    result: CheckResult
    propensity: float
    """The probability with which it was chosen; 1 for the repetition of a check that has found something."""
    checked_at: float
    """Unix seconds."""
    slowdown_ratio: float | None = None
    """How much slower than healthy nodes, or than before, as a ratio; None where nothing was compared."""
    reason: str = ""
    """Why it is undecided, or what is wrong."""

    @property
    def found(self) -> bool:
        """Whether it speaks against the node."""
        return self.result in (CheckResult.SLOWER, CheckResult.WRONG)


@dataclass(frozen=True)
class NodeAdvice:
    """What is to be done with a node because of its class."""

    action: NodeAction = NodeAction.KEEP
    advice: str = ""
    """For the people of the node: the class, and what to do."""
    enforced: bool = False
    """Whether the action is to be carried out, and not only recommended."""


@dataclass(frozen=True)
class NodeState:
    """What is validated of a node, for its own agent and for offers: an open state that is reported, or `quiet`."""

    state: IncidentState = QUIET
    since: float = 0.0
    """Unix seconds; 0 while nothing is known against the node."""
    evidence: str = ""
    advice: NodeAdvice = NodeAdvice()

    @property
    def offered(self) -> IncidentState:
        """What tenants hear with an offer: a node that is drained is no better than one that is confirmed to be
        slow."""
        drained = self.advice.enforced and self.advice.action is NodeAction.DRAIN
        return CONFIRMED if drained and not self.state.is_open else self.state
