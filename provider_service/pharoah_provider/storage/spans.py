"""Repeated reports as spans: one record per rank and stretch of seconds in which nothing changed.

A healthy run reports the same levels for hours, so this keeps a record per change instead of one per second and rank.
Nothing here stores anything: `extend` computes what a storage has to commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan

from pharoah_provider.domain import Report

MAX_CLOCK_STEP_SECONDS = 1.0
"""Two reports of neighbouring seconds whose times differ by more than this from their order start a new span: the
clock of the node was set. A report covers one second, so a larger difference is not a late report."""


@dataclass(frozen=True, kw_only=True)
class ReportSpan:
    """Seconds of one rank, first and last included, with equal values."""

    rank: int
    first_second: int
    last_second: int
    started_at: float
    """When the first second began, unix seconds."""
    ended_at: float
    """When the last second ended, unix seconds."""
    signals: Mapping[str, float]
    masked: bool
    risk: float | None
    """None while the risk is not known."""

    def continues(self, other: ReportSpan) -> bool:
        """Whether this span follows the other at once and has the same values."""
        return (
            self.first_second == other.last_second + 1
            and (self.signals, self.masked, self.risk) == (other.signals, other.masked, other.risk)
            and abs(self.started_at - other.ended_at) <= MAX_CLOCK_STEP_SECONDS
        )


@dataclass(frozen=True)
class SpanChanges:
    """What reports change: `closed` spans are final, `started` and `extended` spans are open, by rank."""

    closed: tuple[ReportSpan, ...]
    started: Mapping[int, ReportSpan]
    extended: Mapping[int, ReportSpan]

    @property
    def rows(self) -> int:
        """How many rows of the storage they touch."""
        return len(self.closed) + len(self.started) + len(self.extended)

    def open_after(self, before: Mapping[int, ReportSpan]) -> dict[int, ReportSpan]:
        """The open spans by rank once the changes are committed."""
        return {**before, **self.extended, **self.started}


def extend(open_spans: Mapping[int, ReportSpan], fresh: Iterable[ReportSpan]) -> SpanChanges:
    """What to commit for fresh spans, given the open span of each rank. Fresh spans come in the order of time."""
    closed: list[ReportSpan] = []
    now, started, extended = dict(open_spans), set[int](), set[int]()
    for span in fresh:
        before = now.get(span.rank)
        if before is not None and span.continues(before):
            now[span.rank] = replace(before, last_second=span.last_second, ended_at=span.ended_at)
            extended.add(span.rank)
            continue
        if before is not None:
            closed.append(before)
        now[span.rank] = span
        started.add(span.rank)
    return SpanChanges(
        tuple(closed),
        {rank: now[rank] for rank in sorted(started)},
        {rank: now[rank] for rank in sorted(extended - started)},
    )


def spans_of(reports: Sequence[Report], masked: Sequence[bool], risk: Sequence[float]) -> list[ReportSpan]:
    """Reports with their masks and risks, as spans that are as long as possible, in the order in which they begin."""
    spans: list[ReportSpan] = []
    growing: dict[int, _Growing] = {}
    """By rank."""
    for report, hidden, score in zip(reports, masked, risk, strict=True):
        values = (report.step_ratio, report.memory_ratio, hidden, None if isnan(score) else score)
        span = growing.get(report.rank)
        # Most reports repeat the one before: they cost three comparisons and no object.
        if (
            span is not None
            and span.values == values
            and report.row_number == span.last.row_number + 1
            and abs(report.ended_at - report.span_seconds - span.last.ended_at) <= MAX_CLOCK_STEP_SECONDS
        ):
            span.last = report
            continue
        if span is not None:
            spans.append(span.finish())
        growing[report.rank] = _Growing(values, report, report)
    spans += [span.finish() for span in growing.values()]
    return sorted(spans, key=lambda span: (span.first_second, span.rank))


@dataclass
class _Growing:
    """A span that may go on with the next report."""

    values: tuple[float, float, bool, float | None]
    first: Report
    last: Report

    def finish(self) -> ReportSpan:
        step_ratio, memory_ratio, masked, risk = self.values
        return ReportSpan(
            rank=self.first.rank,
            first_second=self.first.row_number,
            last_second=self.last.row_number,
            started_at=self.first.ended_at - self.first.span_seconds,
            ended_at=self.last.ended_at,
            signals={"step_ratio": step_ratio, "memory_ratio": memory_ratio},
            masked=masked,
            risk=risk,
        )
