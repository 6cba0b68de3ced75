"""What a campaign consists of, as it is stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_learning.confirmations import NO_PAIRS, Confirmation
from pharoah_learning.context_rule import ALL_FACTS, ContextRule
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.campaigns.executor_settings import ON_AGENTS, ExecutorSettings
from pharoah_provider.campaigns.not_run import NotRun
from pharoah_provider.domain import Node

WorkResult = CellResult | list[BenchmarkResult]
"""What came of a work: of a cell, or of a baseline."""


class CampaignState(StrEnum):
    """Where a campaign stands."""

    PLANNED = "planned"
    RUNNING = "running"
    """A provider that starts again goes on with it."""
    PAUSED = "paused"
    """No node could do what is left. It can be resumed."""
    CANCELLED = "cancelled"
    """An operator has ended it. It can be resumed."""
    SPENT = "spent"
    """Its budget is used up, and works are left. It can be resumed with a larger one."""
    DONE = "done"


class WorkKind(StrEnum):
    """What is done on a node."""

    CELL = "cell"
    DEGRADED = "degraded cell"
    BASELINE = "baseline"
    """Rounds of micro-benchmarks on the idle node, and beside a job of the provider's own."""


class WorkState(StrEnum):
    """What came of a piece of work."""

    WAITING = "waiting"
    DONE = "done"
    MOVED = "moved"
    """Its block began again on another node, because its own was away."""
    NOT_RUN = "not run"
    """It is set aside, and has a cause. It waits again when its campaign is resumed."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One piece of work: one cell, or the baseline of one node."""

    number: int
    """Its place in the plan. One result is kept for each."""
    kind: WorkKind
    context_id: str
    """Empty where its executor has no contexts."""
    block: int
    """Works of a block are done on one node, one after another."""
    cell: Cell | None = None
    """None for a baseline."""
    node: str = ""
    """The node that has taken its block; empty before."""
    state: WorkState = WorkState.WAITING
    suspect: str = ""
    """The id of the suspect that its block is to confirm or refute; empty in other campaigns."""
    cause: NotRun | None = None
    """Why it is set aside; None in every other state."""
    outcome: Outcome | None = None
    """What came of a cell that is done."""
    began_at: float = 0.0
    ended_at: float = 0.0
    """Unix seconds; 0 before."""

    def set_aside(self, cause: NotRun) -> Work:
        """The same work, which is not run until its campaign is resumed."""
        return replace(self, state=WorkState.NOT_RUN, cause=cause)

    @property
    def subject(self) -> str:
        """What the blocks of one workload, or of one suspect, have in common."""
        return f"{self.kind}/{self.suspect or (self.cell.workload if self.cell else '')}"

    @property
    def name(self) -> str:
        """For people."""
        return self.cell.id if self.cell else str(self.kind)


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A campaign as it is stored."""

    campaign_id: str
    name: str
    text: str
    """The campaign file."""
    seed: int
    """Draws the order of blocks, and of the cells within each."""
    state: CampaignState
    created_at: float
    """Unix seconds."""
    reason: str = ""
    """Why it is paused."""
    skip_same_code: bool = False
    """Whether one environment is enough of those in which a workload executes the same code."""
    executor: ExecutorSettings = ON_AGENTS
    budget_seconds: float = 0.0
    """How long works of it may run; 0 is as long as they take."""
    context_rule: ContextRule = ALL_FACTS
    """What made contexts when it was planned; its works keep these contexts to the end."""

    def context_of(self, node: Node) -> str:
        """The context in which the campaign runs works on a node; empty for a node without facts, which is no node of
        the fleet."""
        return self.context_rule.context_of(node.server_facts) if node.server_facts else ""

    def order_id(self, work: Work) -> str:
        """The name of the order for a piece of work: the same after every restart, so that an agent that has done it
        already answers with its result."""
        return f"{self.campaign_id}.{work.number}"


@dataclass(frozen=True, kw_only=True)
class SuspectPair:
    """A suspect that a campaign is to confirm or refute, by cells of two kinds."""

    suspect_id: str
    node: str
    """The node that alone reports the failure."""
    title: str
    suspected: str
    """What the suspected cell trains (`Cell.content`)."""
    control: str
    """What its control trains, which differs in one setting."""
    confirmation: Confirmation = NO_PAIRS
    """What its blocks say so far."""
