"""What a storage must offer, one Protocol per subject. Arguments and results are domain types, never rows.

Every method that writes returns once the change is committed. Every method raises `StoreError`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Protocol

from pharoah_protocol.vocabulary import Attribution, EndState

if TYPE_CHECKING:  # commands that only name a listing need none of it
    from pharoah_benchmarks.campaign.cell import Cell, CellResult, DryCell
    from pharoah_learning.check_history import PastChecks
    from pharoah_learning.evidence import BenchmarkResult, DegradedRun, LeftOut, OutcomeReport, RevealedRun, Trial
    from pharoah_learning.node_actions import NodeDecision
    from pharoah_learning.node_failures import TroubleHour
    from pharoah_learning.release import Release, SealInputs
    from pharoah_protocol.log.forgotten import ForgetChange, ForgetKind
    from pharoah_provider.campaigns.works import Campaign, CampaignState, SuspectPair, Work, WorkResult
    from pharoah_provider.domain import IdleCheck, MeasuredOrder, Node, Report, Run, Subject, Transition
    from pharoah_provider.storage.node_store import NodeStore
    from pharoah_provider.storage.records import (
        EpochRecord,
        ImportedTable,
        ReportedAmount,
        SignedHead,
        StoredDecision,
    )


class RunStore(Protocol):
    """Runs, the node tickets they joined with, and their reports."""

    async def put_run(self, run: Run) -> None:
        """A new attempt. An attempt of the same run that has not ended by then is lost."""

    async def take_ticket(self, nonce: str, run_id: bytes) -> bool:
        """Whether this run holds the ticket: no other run has used it before."""
        ...

    async def run(self, run_id: bytes) -> Run | None:
        """The newest attempt of a run."""
        ...

    async def active_runs(self) -> list[Run]:
        """Attempts that have not ended."""
        ...

    async def list_lost_runs(self) -> list[Run]:
        """Newest attempts that were lost, and whose node was not seen empty since."""
        ...

    async def put_seen_empty(self, node: str) -> None:
        """The agent of a node has seen that nothing runs there: what was lost there is gone."""

    async def end_state(self, run: Run) -> EndState | None:
        """None while the attempt goes on."""
        ...

    async def end_run(
        self,
        run: Run,
        state: EndState,
        ended_at: float,
        attribution: Attribution = Attribution.UNKNOWN,
        outcome: OutcomeReport | None = None,
    ) -> None:
        """How an attempt ended, at a unix time, and what its tenant shares of that: both or neither.

        The first end state of an attempt stands, and the first outcome report about a run.
        """

    async def append_reports(
        self, run: Run, reports: Sequence[Report], masked: Sequence[bool], risk: Sequence[float]
    ) -> int:
        """Reports in the order of their row numbers, each with its mask and its risk; how many rows that has taken."""
        ...

    async def list_reported_since(self, since: float) -> list[ReportedAmount]:
        """What each tenant has reported since then (unix seconds)."""
        ...

    async def last_row_number(self, run_id: bytes, attempt: int) -> int:
        """-1 before the first report."""
        ...


class IncidentStore(Protocol):
    """Incidents of nodes, and their history."""

    async def put_transition(self, change: Transition) -> None:
        """What an incident has become: the newest change is what it is now, the others are its history."""

    async def open_incidents(self) -> list[Transition]:
        """Incidents that are suspected or confirmed, oldest first."""
        ...

    async def changes(self, subject: Subject, since: float) -> list[Transition]:
        """What has changed on a subject since then (unix seconds), oldest first."""
        ...

    async def all_changes(self, since: float) -> list[Transition]:
        """What has changed on all resources since then (unix seconds), oldest first."""
        ...

    async def histories(self, since: float) -> list[Transition]:
        """All changes of the incidents that are open or have changed since then (unix seconds), oldest first."""
        ...


class IdleCheckStore(Protocol):
    """Checks of idle nodes, and the results that they are judged by."""

    async def put(self, check: IdleCheck) -> None: ...
    async def past(self) -> list[PastChecks]:
        """The checks of each node by each micro-benchmark, in no order."""
        ...

    async def results(self, benchmark: str, nodes: Sequence[str], of_each: int) -> list[BenchmarkResult]:
        """The newest results of a micro-benchmark on these nodes while they were idle, so many of each, oldest
        first."""
        ...


class HazardStore(Protocol):
    """What the hazard model of nodes is learned from, and the newest model."""

    async def list_observed_hours(self, since: float, now: float) -> dict[str, list[int]]:
        """Node to the hours since 1970 in which its agent reported, from a unix time on, in no order, without those
        that are not over at `now`: their share of trouble is not known yet."""
        ...

    async def trouble_hours(self, since: float, signals: Collection[str]) -> list[TroubleHour]:
        """The hours in which one of these signals of a device showed trouble, from a unix time on."""
        ...

    async def put_model(self, content: str, made_at: float, check: str = "") -> None:
        """The newest model, in place of the one before; with how it does on nodes it was not fitted on."""

    async def remove_model(self) -> None:
        """No model holds any more."""

    async def newest_model(self) -> str | None: ...

    async def newest_check(self) -> str:
        """How the newest model does; empty without one."""
        ...


class NodeActionStore(Protocol):
    """What is to be done with nodes because of their class, and its history."""

    async def put(self, decisions: Sequence[NodeDecision], at: float, *, by_operator: bool = False) -> None:
        """What holds for these nodes from then on (unix seconds)."""

    async def newest(self) -> list[StoredDecision]:
        """What holds for each node of which anything was decided, by the name of the node."""
        ...

    async def list_returned(self) -> dict[str, float]:
        """Node to when an operator has last returned it to service, unix seconds."""
        ...


class OrderStore(Protocol):
    """Orders for micro-benchmarks that monitoring has sent: what budgets are made from."""

    async def append_orders(self, orders: Sequence[MeasuredOrder]) -> None: ...
    async def list_measured_orders(self, since: float) -> list[MeasuredOrder]:
        """Orders that ended since then (unix seconds), in that order."""
        ...


class EvidenceStore(Protocol):
    """What learning reads: trials, benchmark results, shared outcomes and revealed jobs.

    What is forgotten, and rows that cannot be read, are left out and counted in `left_out`.
    """

    async def append_cell(self, campaign: str, node: Node, cell: Cell, result: CellResult) -> None:
        """The result of a cell that belongs to no planned work."""

    async def trials(self, before: float = float("inf"), left_out: LeftOut | None = None) -> list[Trial]:
        """Trials that ran until then (unix seconds), in the order in which they ran, as learning saw them then. Later
        ones are counted in `left_out`."""
        ...

    async def list_degraded_runs(self, left_out: LeftOut | None = None) -> list[DegradedRun]: ...
    async def append_probes(self, probes: Sequence[BenchmarkResult], purpose: str) -> None: ...
    async def baseline_probes(self, left_out: LeftOut | None = None) -> list[BenchmarkResult]: ...
    async def count_evidence(self, kind: ForgetKind, name: str) -> int:
        """Pieces of evidence that `forget` would be about."""
        ...

    async def put_outcome_report(self, report: OutcomeReport) -> None:
        """The first report about a run stands. `RunStore.end_run` stores one together with the end of its run."""

    async def outcome_reports(self, period: int) -> list[OutcomeReport]: ...


class DryRunStore(Protocol):
    """The provider's own dry runs of cells."""

    async def put(self, cell: Cell, software: str, dry: DryCell) -> None:
        """What the provider's own dry run of a cell gave, under this release of its software."""

    async def missing(self, cells: Sequence[Cell], software: str) -> list[Cell]:
        """One cell for each workload and settings that is still to be dry-run under this release of the software: none
        of its dry runs gave a fingerprint, and there were few."""
        ...

    async def fingerprints(self, cells: Sequence[Cell], software: str) -> dict[str, str]:
        """`Cell.content` to what the dry run of a cell under this release of the software gave, where that is one."""
        ...


class WorkStore(Protocol):
    """The works of campaigns."""

    async def works(self, campaign_id: str) -> list[Work]:
        """In the order of the plan."""
        ...

    async def list_planned_cells(self, workload: str) -> list[Cell]:
        """The cells of a workload in all campaigns, those of the newest campaign first."""
        ...

    async def cell_seconds(self, workload: str) -> dict[str, float]:
        """What the cells of a workload have taken in campaigns on average, in seconds, by `Cell.content`."""
        ...

    async def assign_block(self, campaign_id: str, work: Work) -> None:
        """The block of a work belongs to the node of the work."""

    async def move_blocks(self, campaign_id: str, blocks: Set[int], added: Sequence[Work]) -> None:
        """What waits in these blocks is moved, and these works are added."""

    async def set_aside(self, campaign_id: str, works: Sequence[Work], reason: str) -> None:
        """They are not run until `bring_back`; each has its cause. `reason` says why, for people."""

    async def bring_back(self, campaign_id: str) -> None:
        """All works that were set aside wait again, whatever their cause."""

    async def finish_work(self, campaign: Campaign, work: Work, node: Node, result: WorkResult) -> None:
        """A work is done, and its result is kept: both or neither. A second result of one work changes nothing. `work`
        has its times and its outcome."""


class CampaignStore(WorkStore, Protocol):
    """Campaigns, their works and the results of these."""

    async def put_campaign(
        self, campaign: Campaign, works: Sequence[Work], suspects: Sequence[SuspectPair] = ()
    ) -> None: ...
    async def campaigns(self) -> list[Campaign]:
        """All, oldest first."""
        ...

    async def suspects(self, campaign_id: str) -> list[SuspectPair]:
        """All suspects that a campaign is to confirm or refute."""
        ...

    async def set_state(self, campaign_id: str, state: CampaignState, reason: str = "") -> None: ...
    async def set_budget(self, campaign_id: str, budget_seconds: float) -> None: ...
    async def set_confirmation(self, campaign_id: str, suspect: SuspectPair, needless: Sequence[Work]) -> None:
        """What the blocks of a suspect say now; works that it does not need any more, each with its cause, are set
        aside."""


class SharingStore(Protocol):
    """What tenants share in plain words, and what stands behind an outcome that one shares."""

    async def count_evaluation(self, organisation: str, period: int) -> None:
        """An organisation had one pseudonym evaluated."""

    async def evaluations(self, organisation: str, period: int) -> int:
        """How many it had evaluated in a period."""
        ...

    async def names(self, organisation: str, period: int) -> set[str]:
        """Pseudonyms that it has reported about in a period, hexadecimal."""
        ...

    async def sum_reported_seconds(self, run: Run) -> int:
        """Seconds that the longest attempt of a run has reported, from a day before it joined last on."""
        ...

    async def put_revealed(self, run: Run, context_id: str, fingerprint: str) -> None: ...
    async def list_revealed_runs(self, before: float, left_out: LeftOut | None = None) -> list[RevealedRun]:
        """Runs that have ended and were revealed until then (unix seconds), in the order in which they were."""
        ...


class ImportStore(Protocol):
    """Portable tables of other providers."""

    async def put_import(self, imported: ImportedTable, at: float) -> None:
        """From this moment on (unix seconds) the table is used in place of an earlier one of the same provider."""

    async def remove_import(self, provider: str, at: float) -> None:
        """From this moment on the table of this provider is not used."""

    async def imports(self, before: float = float("inf")) -> list[ImportedTable]:
        """The tables that were used at a moment, as learning saw them then, by the name of the provider."""
        ...


class PublishedStore(Protocol):
    """Releases and the epochs they were sealed as."""

    async def put_release(self, release: Release, made_at: float | None = None) -> None:
        """`made_at` (unix seconds) is when the evidence was read; the default is now."""

    async def newest_release(self) -> Release | None:
        """The newest release that was not rolled back."""
        ...

    async def release(self, number: int) -> Release | None: ...
    async def release_made_at(self, number: int) -> float: ...
    async def last_release_number(self) -> int:
        """0 before the first release; releases that were rolled back count."""
        ...

    async def release_before(self, number: int) -> Release | None:
        """The newest release below this number that was not rolled back."""
        ...

    async def roll_back_release(self, number: int) -> None: ...
    async def put_epoch(
        self,
        recipe: SealInputs,
        sealed: SignedHead,
        revoked: Sequence[bytes],
        position: int,
        entries: Sequence[bytes],
    ) -> None:
        """An epoch, its revoked rows and its entries in the log: all or nothing."""

    async def epoch(self, number: int) -> EpochRecord | None: ...
    async def newest_epochs(self, count: int) -> list[EpochRecord]:
        """The newest comes first."""
        ...

    async def seeds_before(self, began: float) -> list[int]:
        """Epochs that began before then (unix seconds) and whose seed still exists."""
        ...

    async def put_seed_destroyed(self, epoch: int) -> None: ...


class LogStore(Protocol):
    """The transparency log, its newest checkpoint, revoked rows and forgotten evidence."""

    async def log_entries(self) -> list[bytes]: ...
    async def put_log_entries(self, position: int, entries: Sequence[bytes]) -> None:
        """Entries from this position on, all or none."""

    async def put_checkpoint(self, note: bytes) -> None:
        """The newest checkpoint, with its cosignatures."""

    async def checkpoint(self) -> bytes:
        """Empty before the first checkpoint."""
        ...

    async def put_revoked(
        self, epoch: int, release: int, rows: Mapping[str, bytes], position: int, entry: bytes
    ) -> None:
        """Revoked rows, by id, and their entry in the log, both or neither."""

    async def list_revoked(self, epoch: int) -> list[bytes]:
        """Class handle and tag of each revoked row of an epoch."""
        ...

    async def list_revoked_ids(self) -> list[str]:
        """Ids of rows that were revoked in any epoch and have not been reinstated."""
        ...

    async def keep_revoked(self, epoch: int, rows: Mapping[str, bytes]) -> None:
        """Revoked rows of an epoch, by id, that stay revoked in later epochs."""

    async def reinstate(self, ids: Sequence[str]) -> None:
        """Rows that hold again from the next epoch on."""

    async def put_forgotten(self, change: ForgetChange, position: int, entry: bytes) -> None:
        """A change of which evidence is forgotten and its entry in the log, both or neither."""

    async def list_forgotten(self, before: float = float("inf")) -> list[ForgetChange]:
        """All changes up to then (unix seconds), oldest first."""
        ...


class Storage(Protocol):
    """All stores of one provider."""

    @property
    def nodes(self) -> NodeStore: ...
    @property
    def runs(self) -> RunStore: ...
    @property
    def incidents(self) -> IncidentStore: ...
    @property
    def hazards(self) -> HazardStore: ...
    @property
    def idle_checks(self) -> IdleCheckStore: ...
    @property
    def node_actions(self) -> NodeActionStore: ...
    @property
    def orders(self) -> OrderStore: ...
    @property
    def evidence(self) -> EvidenceStore: ...
    @property
    def dry_runs(self) -> DryRunStore: ...
    @property
    def campaigns(self) -> CampaignStore: ...
    @property
    def sharing(self) -> SharingStore: ...
    @property
    def imports(self) -> ImportStore: ...
    @property
    def published(self) -> PublishedStore: ...
    @property
    def log(self) -> LogStore: ...
    async def delete_before(self, table: str, before: float) -> int:
        """Delete rows of a table of `storage.retention` from before then (unix seconds); returns how many."""
        ...

    @property
    def failed(self) -> bool:
        """Whether the storage has ended with an error: nothing can be read or stored before the next start."""
        ...

    async def select(self, query: str) -> list[dict[str, Any]]:
        """Rows of a query for a listing, in the SQL of this storage; nothing but listings reads rows."""
        ...

    def close(self) -> None: ...
