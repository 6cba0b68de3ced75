"""Reports as spans. A batch that changes nothing costs one update of the run's few open spans."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa

from pharoah_provider.domain import Report, Run
from pharoah_provider.storage.duckdb.database import Change, Database, appending, executing
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_provider.storage.spans import ReportSpan, SpanChanges, extend, spans_of
from pharoah_serving.costs import in_thread

SQL = statements("reports")
ROWS_IN_LOOP = 128
"""Rows of a report that the event loop may work on at once, about 1 ms; larger reports go through a thread."""
SIGNALS = pa.map_(pa.string(), pa.float64())


@dataclass
class _OpenRun:
    """What is committed of a run: its newest second and its open spans by rank."""

    attempt: int
    last_second: int
    spans: dict[int, ReportSpan]


@dataclass
class ReportSpans:
    """Commits reports of runs; keeps the committed open spans in memory, so that a report needs no read."""

    database: Database
    _open: dict[bytes, _OpenRun] = field(default_factory=dict)
    _locks: WeakValueDictionary[bytes, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """One change per run at a time: each is computed from what the one before has committed."""

    async def append(self, run: Run, reports: Sequence[Report], masked: Sequence[bool], risk: Sequence[float]) -> int:
        """Commit reports in the order of their row numbers; how many rows that has taken."""
        if not reports:
            return 0
        async with self._alone(run.run_id):
            before = await self._state(run.run_id, run.attempt)
            # From here on the memory is behind the database until the commit is known: without it, read again.
            del self._open[run.run_id]
            if len(reports) <= ROWS_IN_LOOP:
                changes, statements = _computed(run, before, reports, masked, risk)
            else:
                changes, statements = await in_thread(_computed, run, before, reports, masked, risk)
            await self.database.apply(*statements)
            last = max(before.last_second, reports[-1].row_number)
            self._open[run.run_id] = _OpenRun(run.attempt, last, changes.open_after(before.spans))
            return len(changes.closed) + len(changes.started)

    async def last_second(self, run_id: bytes, attempt: int) -> int:
        """-1 before the first report."""
        async with self._alone(run_id):
            return (await self._state(run_id, attempt)).last_second

    async def begin(self, run: Run, *changes: Change) -> None:
        """Commit these changes, with which a new attempt begins: nothing has been reported of it."""
        await self.close(run.run_id, *changes)
        self._open[run.run_id] = _OpenRun(run.attempt, -1, {})

    async def close(self, run_id: bytes, *changes: Change) -> None:
        """Commit these changes and, with them, close the spans of a run: it ended, or begins its next attempt."""
        async with self._alone(run_id):
            self._open.pop(run_id, None)
            closing = [executing(SQL["close_all"], [run_id]), executing(SQL["remove_all_open"], [run_id])]
            await self.database.apply(*changes, *closing)

    @asynccontextmanager
    async def _alone(self, run_id: bytes) -> AsyncIterator[None]:
        # Whoever waits for a lock holds a reference to it; the last one to leave lets it go.
        if (lock := self._locks.get(run_id)) is None:
            self._locks[run_id] = lock = asyncio.Lock()
        async with lock:
            yield

    async def _state(self, run_id: bytes, attempt: int) -> _OpenRun:
        known = self._open.get(run_id)
        if known is None or known.attempt != attempt:
            rows = await self.database.read(SQL["open_spans"], [run_id, attempt])
            last = max((int(row["last_second"]) for row in rows), default=None)
            if last is None:  # it has ended, or not reported: only then the large table of all reports is read
                newest = await self.database.read(SQL["last_second"], {"run_id": run_id, "attempt": attempt})
                last = -1 if newest[0]["last"] is None else int(newest[0]["last"])
            known = _OpenRun(attempt, last, {row["rank"]: _span(row) for row in rows})
            self._open[run_id] = known
        return known


def _computed(
    run: Run, before: _OpenRun, reports: Sequence[Report], masked: Sequence[bool], risk: Sequence[float]
) -> tuple[SpanChanges, list[Change]]:
    """What reports change, and how it is stored."""
    changes = extend(before.spans, spans_of(reports, masked, risk))
    return changes, _statements(run, changes)


def _statements(run: Run, changes: SpanChanges) -> list[Change]:
    """One statement when nothing has changed, which is the usual case."""
    of_run = [run.run_id, run.attempt]
    found: list[Change] = []
    if changes.closed:
        found.append(appending("report_spans", _columns(run, changes.closed)))
    if changes.started:
        found.append(executing(SQL["remove_open"], [*of_run, list(changes.started)]))
        found.append(appending("open_report_spans", _columns(run, changes.started.values())))
    by_end: Mapping[tuple[int, float], list[int]] = defaultdict(list)
    for rank, span in changes.extended.items():
        by_end[span.last_second, span.ended_at].append(rank)
    found += [executing(SQL["extend"], [*end, *of_run, ranks]) for end, ranks in by_end.items()]
    return found


def _columns(run: Run, spans: Iterable[ReportSpan]) -> dict[str, Any]:
    spans = list(spans)
    names = ("rank", "first_second", "last_second", "started_at", "ended_at", "masked")
    return {
        "run_id": [run.run_id] * len(spans),
        "attempt": [run.attempt] * len(spans),
        **{name: [getattr(span, name) for span in spans] for name in names},
        "signals": pa.array([list(span.signals.items()) for span in spans], SIGNALS),
        "risk": pa.array([span.risk for span in spans], pa.float64()),
    }


def _span(row: dict[str, Any]) -> ReportSpan:
    names = ("rank", "first_second", "last_second", "started_at", "ended_at", "signals", "masked", "risk")
    return ReportSpan(**{name: row[name] for name in names})
