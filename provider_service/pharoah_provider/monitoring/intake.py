"""Takes the reports of runs: each second once, at the pace at which time passes, and whole once it has begun."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from pharoah_provider.clock import Clock
from pharoah_provider.domain import Report, Run
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.storage.base import RunStore
from pharoah_serving.errors import Exhausted
from pharoah_serving.metrics import Metrics
from pharoah_serving.quotas import TokenBucket

AT_ONCE = 128
"""Rows that are scored in one go; others get their turn in between."""
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

    def __init__(self, runs: RunStore, monitor: Monitor, metrics: Metrics, clock: Clock) -> None:
        self._runs, self._monitor, self._metrics, self._clock = runs, monitor, metrics, clock
        self._taken: dict[bytes, _Taken] = {}
        self._opening = asyncio.Lock()

    async def take(self, run: Run, reports: Sequence[Report], dropped: int = 0) -> None:
        """Keep rows that are new, and let the monitor act on what is kept.

        `dropped` counts the seconds that the sidecar could not keep since the run began. Raises Exhausted for a run
        that reports more seconds than pass.
        """
        taken = await self._of(run)
        async with taken.turn:
            fresh = [report for report in reports if report.row_number > taken.last]
            self._allow(taken, len(fresh) / run.ranks)  # what is sent again costs nothing
            self._count_dropped(taken, dropped)
            for at in range(0, len(fresh), step := AT_ONCE // run.ranks * run.ranks or run.ranks):
                part = fresh[at : at + step]
                masked, risks = self._monitor.score(run, part)
                await self._runs.append_reports(run, part, masked, risks)
                taken.last = part[-1].row_number
                await self._monitor.react(run, part, masked, risks)

    def forget(self, run_id: bytes) -> None:
        """The run is over."""
        self._taken.pop(run_id, None)

    async def _of(self, run: Run) -> _Taken:
        known = self._taken.get(run.run_id)
        if known is not None and known.attempt == run.attempt:
            return known
        async with self._opening:  # two first reports must not open it twice
            taken = self._taken.get(run.run_id)
            if taken is None or taken.attempt != run.attempt:
                last, now = await self._runs.last_row_number(run.run_id, run.attempt), self._clock.steady()
                seconds = taken.seconds if taken else TokenBucket.full(CAUGHT_UP_SECONDS, REPORTED_RATIO, now)
                taken = self._taken[run.run_id] = _Taken(run.attempt, last, seconds, began_at=now)
            return taken

    def _allow(self, taken: _Taken, seconds: float) -> None:
        """Raises Exhausted."""
        if not taken.seconds.take(seconds, self._clock.steady()):
            self._metrics.rejected.labels("too_fast").inc(seconds)
            raise Exhausted(f"a run has {REPORTED_RATIO} seconds to report in a second")

    def _count_dropped(self, taken: _Taken, dropped: int) -> None:
        """Add what is new to the metric; no run can have dropped more seconds than it may report."""
        new, taken.dropped = dropped - taken.dropped, max(dropped, taken.dropped)
        most = CAUGHT_UP_SECONDS + self._clock.steady() - taken.began_at
        if new > 0:
            self._metrics.rejected.labels("dropped_by_sidecar").inc(min(new, most))
