"""What an organisation may join and report: budgets that the end of a run does not restore.

After a restart, the runs that go on and what was reported on this day are counted again from the storage. The buckets,
which bound what happens at once, are full again.

Numbers are those of one job of 1,024 nodes with eight ranks each, which is the largest that must fit at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from pharoah_provider.domain import Run
from pharoah_provider.storage.records import ReportedAmount
from pharoah_serving.clock import Clock
from pharoah_serving.errors import Exhausted
from pharoah_serving.quotas import DailyQuota, TokenBucket

JOB_NODES, NODE_RANKS = 1024, 8
ACTIVE_RUNS = 4 * JOB_NODES
"""Runs of one organisation that go on at once: four such jobs."""
ACTIVE_RANKS = ACTIVE_RUNS * NODE_RANKS
"""Their ranks together; the monitor keeps about 1 KB for each."""
ACTIVE_RUNS_ON_NODE = 64
"""Runs of one organisation on one node at once: eight jobs on each of eight GPUs."""
NODE_JOINS, NODE_JOINS_PER_SECOND = 1024.0, 0.2
"""How often an organisation may join runs on one node at once, and per second: a sweep of a thousand short jobs, and
then one job every five seconds. Each leaves a row of about 100 bytes for a year."""
RANK_SECONDS_AT_ONCE = float(JOB_NODES * NODE_RANKS * 3600)
"""The hour that sidecars keep while the provider is away."""
RANK_SECONDS_PER_SECOND = 4 * 1.1 * JOB_NODES * NODE_RANKS
"""Four such jobs, with a tenth to catch up."""
RANK_SECONDS_PER_DAY = 4 * JOB_NODES * NODE_RANKS * 86_400
ROWS_PER_DAY = 1 << 22
"""Stretches of equal values, of about 60 bytes each: a rank of such a job may change its level 128 times a day."""


def organisation_of(tenant: str) -> str:
    """The organisation of a tenant's account."""
    return tenant.partition("/")[0]


class JoinBudgets:
    """Which runs go on, by organisation and node; and how often an organisation joins. Belongs to the event loop."""

    def __init__(self, watches: Callable[[Run], bool], clock: Clock) -> None:
        """`watches`: whether a run still goes on; runs also end without a word."""
        self._watches, self._clock = watches, clock
        self._runs: dict[str, dict[bytes, Run]] = defaultdict(dict)
        """By organisation and number of the run."""
        self._rates: dict[str, dict[str, TokenBucket]] = defaultdict(dict)
        """By node and organisation: there are as many nodes as agents, whatever tenants do."""

    def restore(self, runs: Iterable[Run]) -> None:
        """After a restart: the runs that go on."""
        for run in runs:
            self.add_run(run)

    def take(self, tenant: str, node: str, run_id: bytes, ranks: int) -> None:
        """Count an attempt to join. Raises Exhausted that names what is used up."""
        organisation, now = organisation_of(tenant), self._clock.steady()
        self._check_active(organisation, node, run_id, ranks)
        rates = self._rates[node]
        if organisation not in rates:
            rates[organisation] = TokenBucket.full(NODE_JOINS, NODE_JOINS_PER_SECOND, now)
        if not rates[organisation].take(1.0, now):
            raise Exhausted(f"runs on one node: {60 * NODE_JOINS_PER_SECOND:g} may join in a minute")

    def add_run(self, run: Run) -> None:
        """A run goes on."""
        self._runs[organisation_of(run.tenant)][run.run_id] = run

    def end_run(self, run: Run) -> None:
        """A run is over."""
        runs = self._runs[organisation_of(run.tenant)]
        runs.pop(run.run_id, None)
        if not runs:
            del self._runs[organisation_of(run.tenant)]

    def _check_active(self, organisation: str, node: str, run_id: bytes, ranks: int) -> None:
        for tried in range(2):
            others = [run for run in self._runs[organisation].values() if run.run_id != run_id]
            crowded = _explain_crowding(others, node, ranks)
            if not crowded:
                return
            if not tried:
                for run in [run for run in others if not self._watches(run)]:
                    self.end_run(run)
        raise Exhausted(crowded)


def _explain_crowding(others: list[Run], node: str, ranks: int) -> str:
    """Why no further run may go on beside these; empty when it may."""
    if len(others) >= ACTIVE_RUNS:
        return f"runs: an organisation has at most {ACTIVE_RUNS} at once"
    if sum(run.ranks for run in others) + ranks > ACTIVE_RANKS:
        return f"ranks: the runs of an organisation have at most {ACTIVE_RANKS} at once"
    if sum(run.node == node for run in others) >= ACTIVE_RUNS_ON_NODE:
        return f"runs on one node: an organisation has at most {ACTIVE_RUNS_ON_NODE} at once"
    return ""


class ReportBudgets:
    """How much organisations have reported: today, and lately. Belongs to the event loop."""

    def __init__(self, clock: Clock, today: Iterable[ReportedAmount] = ()) -> None:
        """`today`: what the storage holds of this UTC day, after a restart."""
        self._clock = clock
        self._rank_seconds = DailyQuota(RANK_SECONDS_PER_DAY, "seconds of ranks")
        self._rows = DailyQuota(ROWS_PER_DAY, "changes of reported levels")
        self._lately: dict[str, TokenBucket] = {}
        before = Counter[str](), Counter[str]()
        for amount in today:
            before[0][organisation_of(amount.tenant)] += amount.rank_seconds
            before[1][organisation_of(amount.tenant)] += amount.rows
        for organisation in before[0]:
            self._rank_seconds.add_used(organisation, before[0][organisation], clock.wall())
            self._rows.add_used(organisation, before[1][organisation], clock.wall())

    def take(self, tenant: str, rank_seconds: int) -> None:
        """Count seconds of ranks that are reported. Raises Exhausted; then nothing is counted."""
        organisation, wall, now = organisation_of(tenant), self._clock.wall(), self._clock.steady()
        self._rank_seconds.check(organisation, wall)
        self._rows.check(organisation, wall)
        if organisation not in self._lately:
            self._lately[organisation] = TokenBucket.full(RANK_SECONDS_AT_ONCE, RANK_SECONDS_PER_SECOND, now)
        if not self._lately[organisation].take(rank_seconds, now):
            raise Exhausted(f"an organisation has {RANK_SECONDS_PER_SECOND:g} seconds of ranks to report in a second")
        self._rank_seconds.add_used(organisation, rank_seconds, wall)

    def give_back(self, tenant: str, rank_seconds: int) -> None:
        """Seconds of ranks that were taken, and that the storage has not kept, are not counted. After midnight the new
        day gets them."""
        organisation = organisation_of(tenant)
        self._lately[organisation].give_back(rank_seconds)
        self._rank_seconds.add_used(organisation, -rank_seconds, self._clock.wall())

    def store(self, tenant: str, rows: int) -> None:
        """Count rows that the storage has kept."""
        self._rows.add_used(organisation_of(tenant), rows, self._clock.wall())
