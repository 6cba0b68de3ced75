"""Reports as spans. What the reports of many runs change is committed together, in a few statements for all of them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import duckdb
import pyarrow as pa

from pharoah_provider.domain import Report, Run
from pharoah_provider.storage.duckdb.changes import Change
from pharoah_provider.storage.duckdb.database import Database, appending, executing, executing_with
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_provider.storage.spans import ReportSpan, SpanChanges, extend, spans_of
from pharoah_serving.costs import in_thread

SQL = statements("reports")
ROWS_IN_LOOP = 128
"""Rows of a report that the event loop may work on at once, about 1 ms; larger reports go through a thread."""
SIGNALS = pa.map_(pa.string(), pa.float64())
KEY = ("run_id", "attempt", "rank")
"""What names an open span."""
COLUMNS = (*KEY, "first_second", "last_second", "started_at", "ended_at", "masked", "signals", "risk")


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
    _changed: bool = False
    """Whether anything was written since the database was opened."""

    async def append(self, run: Run, reports: Sequence[Report], masked: Sequence[bool], risk: Sequence[float]) -> int:
        """Commit reports in the order of their row numbers; how many rows that has taken."""
        if not reports:
            return 0
        async with self._alone(run.run_id):
            before = await self._state(run.run_id, run.attempt)
            self._changed = True
            # From here on the memory is behind the database until the commit is known: without it, read again.
            del self._open[run.run_id]
            if len(reports) <= ROWS_IN_LOOP:
                changes = _compute(before, reports, masked, risk)
            else:
                changes = await in_thread(_compute, before, reports, masked, risk)
            await self.database.write(_write, _RunChanges(run, changes), changes.rows)
            last = max(before.last_second, reports[-1].row_number)
            self._open[run.run_id] = _OpenRun(run.attempt, last, changes.open_after(before.spans))
            return len(changes.closed) + len(changes.started)

    async def read_all(self, active: Iterable[Run]) -> None:
        """After a restart: read what is committed of all runs that go on. One after the other, ten thousand runs that
        report again would wait for a minute. Does nothing once anything was written, when the memory is ahead of it."""
        rows = await self.database.read(SQL["all_open_spans"])
        if self._changed:
            return
        of_run = defaultdict[bytes, list[dict[str, Any]]](list)
        for row in rows:
            of_run[bytes(row["run_id"])].append(row)
        for run in active:  # one without open spans has not reported: they are closed when an attempt ends
            spans = {row["rank"]: _span(row) for row in of_run[run.run_id] if row["attempt"] == run.attempt}
            last = max((span.last_second for span in spans.values()), default=-1)
            self._open[run.run_id] = _OpenRun(run.attempt, last, spans)

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
            self._changed = True
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
            # A caller that was cancelled has left its change in the queue: what is read must contain it.
            await self.database.wait_committed()
            rows = await self.database.read(SQL["open_spans"], [run_id, attempt])
            last = max((int(row["last_second"]) for row in rows), default=None)
            if last is None:  # it has ended, or not reported: only then the large table of all reports is read
                newest = await self.database.read(SQL["last_second"], {"run_id": run_id, "attempt": attempt})
                last = -1 if newest[0]["last"] is None else int(newest[0]["last"])
            known = _OpenRun(attempt, last, {row["rank"]: _span(row) for row in rows})
            self._open[run_id] = known
        return known


class _RunChanges(NamedTuple):
    """What one report changes."""

    run: Run
    changes: SpanChanges


def _compute(before: _OpenRun, reports: Sequence[Report], masked: Sequence[bool], risk: Sequence[float]) -> SpanChanges:
    """What reports change."""
    return extend(before.spans, spans_of(reports, masked, risk))


def _write(connection: duckdb.DuckDBPyConnection, reported: Sequence[_RunChanges]) -> None:
    """Write what the reports of several runs change, in at most four statements: a report that changes nothing, which
    is the usual case, needs a line of the last one."""
    for together in _each_run_once(reported):
        closed = [(run, span) for run, changes in together for span in changes.closed]
        started = [(run, span) for run, changes in together for span in changes.started.values()]
        extended = [(run, span) for run, changes in together for span in changes.extended.values()]
        if closed:
            appending("report_spans", _columns(closed))(connection)
        if started:
            executing_with(SQL["remove_open"], _columns(started, KEY))(connection)
            appending("open_report_spans", _columns(started))(connection)
        if extended:
            executing_with(SQL["extend"], _columns(extended, (*KEY, "last_second", "ended_at")))(connection)


def _each_run_once(reported: Sequence[_RunChanges]) -> Iterator[list[_RunChanges]]:
    """The reports in their order, in parts in which no run comes twice: its second change follows from the first. A run
    comes twice when a caller did not wait for its first change."""
    part, seen = list[_RunChanges](), set[bytes]()
    for one in reported:
        if one.run.run_id in seen:
            yield part
            part, seen = [], set()
        part.append(one)
        seen.add(one.run.run_id)
    yield part


def _columns(spans: Sequence[tuple[Run, ReportSpan]], names: Sequence[str] = COLUMNS) -> dict[str, Any]:
    """Spans, each with its run, as columns of these names."""
    found: dict[str, Any] = {}
    for name in names:
        if name in ("run_id", "attempt"):
            found[name] = [getattr(run, name) for run, _ in spans]
        elif name == "signals":
            found[name] = pa.array([list(span.signals.items()) for _, span in spans], SIGNALS)
        else:
            found[name] = [getattr(span, name) for _, span in spans]
    found["rank"] = pa.array(found["rank"], pa.int32())
    if "risk" in found:
        found["risk"] = pa.array(found["risk"], pa.float64())
    return found


def _span(row: dict[str, Any]) -> ReportSpan:
    names = ("rank", "first_second", "last_second", "started_at", "ended_at", "signals", "masked", "risk")
    return ReportSpan(**{name: row[name] for name in names})
