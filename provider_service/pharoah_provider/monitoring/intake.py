"""Takes the reports of runs: each second once, at the pace at which time passes, and whole once it has begun."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from pharoah_provider.domain import Report, Run
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.monitoring.run_budgets import ReportBudgets
from pharoah_provider.storage.base import RunStore
from pharoah_serving.clock import Clock
from pharoah_serving.errors import Exhausted, NotReady
from pharoah_serving.metrics import Metrics
from pharoah_serving.quotas import TokenBucket
from pharoah_serving.turns import alone, give_way

AT_ONCE = 128
"""Rows that are committed in one go, or those of one second, whichever is more."""
ROWS_OF_A_TURN = 64
"""Rows that are scored in one go; others get their turn in between."""
FEW_RUNS = 1024
"""So many runs are remembered without a look at which of them go on; each takes about 500 bytes."""
CAUGHT_UP_SECONDS, REPORTED_RATIO = 2 * 3600.0, 1.1
"""A run may report as many seconds as a sidecar keeps, and then hardly more than pass."""


@dataclass
class _Taken:
    """What was taken of one attempt of a run."""

    attempt: int
    last: int
    """Number of its newest second; -1 before the first."""
    seconds: TokenBucket
    """Seconds that it may report, on the steady clock."""
    began_at: float
    dropped: int = 0
    """Seconds that its sidecar has reported as dropped."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Intake:
    """Keeps in memory, for each run, what was taken: the store is asked for it once, after a restart."""

    def __init__(
        self, runs: RunStore, monitor: Monitor, metrics: Metrics, clock: Clock, budgets: ReportBudgets | None = None
    ) -> None:
        self._runs, self._monitor, self._metrics, self._clock = runs, monitor, metrics, clock
        self._budgets = budgets or ReportBudgets(clock)
        self._taken: dict[bytes, _Taken] = {}
        self._look_at = FEW_RUNS
        """Number of runs at which those that have ended are looked for."""

    async def take(self, run: Run, reports: Sequence[Report], dropped: int = 0) -> None:
        """Keep rows that are new, and let the monitor act on what is kept.

        `dropped` counts the seconds that the sidecar could not keep since the run began. Raises Exhausted for a run
        that reports more seconds than pass, and for an organisation whose budget is used up. Rows that could not be
        kept cost nothing: the sidecar reports them again.
        """
        taken = await self._get_taken(run)
        async with alone(taken.turn):
            known = _count_known(reports, taken)  # costs nothing again
            self._allow(run, taken, len(reports) - known)
            try:
                self._count_dropped(taken, dropped)
                for at in range(known, len(reports), step := AT_ONCE // run.ranks * run.ranks or run.ranks):
                    await self._take_part(run, taken, reports[at : at + step])
            except BaseException:
                self._give_back(run, taken, len(reports) - _count_known(reports, taken))
                raise

    async def _take_part(self, run: Run, taken: _Taken, part: Sequence[Report]) -> None:
        """Keep whole seconds, and let the monitor act on them; others get their turn in between."""
        masked, risks = list[bool](), list[float]()
        slices = [slice(at, at + ROWS_OF_A_TURN) for at in range(0, len(part), ROWS_OF_A_TURN)]
        for each in slices:
            self._require_going(run)  # what is scored of a run that has ended would be kept for ever
            scored = self._monitor.score(run, part[each])
            masked += scored.masked
            risks += scored.risks
            await give_way()
        self._require_going(run)
        self._budgets.store(run.tenant, await self._runs.append_reports(run, part, masked, risks))
        taken.last = part[-1].row_number
        for each in slices:
            await self._monitor.react(run, part[each], masked[each], risks[each])
            await give_way()

    def _require_going(self, run: Run) -> None:
        """Raises NotReady when an attempt has ended meanwhile, and its rows with it."""
        if not self._monitor.watches(run):
            raise NotReady(f"attempt {run.attempt} of the run has ended; join again")

    def forget(self, run_id: bytes) -> None:
        """The run is over."""
        self._taken.pop(run_id, None)

    async def _get_taken(self, run: Run) -> _Taken:
        known = self._taken.get(run.run_id)
        if known is not None and known.attempt == run.attempt:
            return known
        last, now = await self._runs.last_row_number(run.run_id, run.attempt), self._clock.steady()
        taken = self._taken.get(run.run_id)
        if taken is None or taken.attempt != run.attempt:  # another first report may have opened it meanwhile
            seconds = taken.seconds if taken else TokenBucket.full(CAUGHT_UP_SECONDS, REPORTED_RATIO, now)
            taken = self._taken[run.run_id] = _Taken(run.attempt, last, seconds, began_at=now)
            self._forget_lost()
        return taken

    def _forget_lost(self) -> None:
        """Forget runs that have ended without a word, when there are many: memory is for runs that go on."""
        if len(self._taken) >= self._look_at:
            self._taken = {run_id: taken for run_id, taken in self._taken.items() if self._monitor.active(run_id)}
            self._look_at = max(FEW_RUNS, 2 * len(self._taken))

    def _allow(self, run: Run, taken: _Taken, rows: int) -> None:
        """Raises Exhausted; then nothing is taken."""
        seconds = rows / run.ranks
        try:
            self._budgets.take(run.tenant, rows)
            if not taken.seconds.take(seconds, self._clock.steady()):
                self._budgets.give_back(run.tenant, rows)
                raise Exhausted(f"a run has {REPORTED_RATIO} seconds to report in a second")
        except Exhausted:
            self._metrics.rejected.labels("too_fast").inc(seconds)
            raise

    def _give_back(self, run: Run, taken: _Taken, rows: int) -> None:
        taken.seconds.give_back(rows / run.ranks)
        self._budgets.give_back(run.tenant, rows)

    def _count_dropped(self, taken: _Taken, dropped: int) -> None:
        """Add what is new to the metric; no run can have dropped more seconds than it may report."""
        new, taken.dropped = dropped - taken.dropped, max(dropped, taken.dropped)
        most = CAUGHT_UP_SECONDS + self._clock.steady() - taken.began_at
        if new > 0:
            self._metrics.rejected.labels("dropped_by_sidecar").inc(min(new, most))


def _count_known(reports: Sequence[Report], taken: _Taken) -> int:
    """How many of these reports, which are in the order of their seconds, are kept already."""
    return bisect_right(reports, taken.last, key=lambda report: report.row_number)
