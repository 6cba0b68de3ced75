"""Reads the report of a dry run while the child writes it: the parent's side of `pharoah.dryrun.reports`."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from math import inf
from typing import NamedTuple, Protocol

from pharoah._errors import UnknownReason
from pharoah.dryrun.reports import Decision, ReportKind, ReportLine

MAX_REPORT_BYTES = 256 << 20
"""Limit for the part of a report that is kept: the memory of the parent is bounded, whatever a script writes. An event
of memory takes about 4 bytes of it, and three steps of the largest models have a few million of them."""
EXPLORE_SECONDS = 5.0
"""How long other ways are followed after the most plausible one has given a result. A user waits for the verdict."""
NOT_OURS = "the script wrote into the file that takes the result of the dry run"
_RESULTS = {ReportKind.PROVISIONAL, ReportKind.FINAL}
_CHUNK_BYTES = 1 << 16
"""As much as a pipe holds (pipe(7))."""


class ReadReport(NamedTuple):
    """What a child has reported."""

    lines: list[ReportLine]
    """Whole lines, without those that a later one of the same way replaces."""
    unread: str = ""
    """Why the report was not read to its end; empty when it was."""
    exploring_seconds: float = 0.0
    """How long branches were followed after the first result."""


class Limit(Protocol):
    """What is left of the time of a child, as `pharoah_system.had_time.LimitClock` gives it."""

    def pause(self) -> float:
        """Seconds until this is asked again; 0 when the time is over."""

    def end_within(self, seconds: float) -> None:
        """The time that is left is no longer than this."""


def read_report(results: int, limit: Limit, over: str, obstacle: Callable[[], str] = str) -> ReadReport:
    """Read lines until the child closes the pipe or reports a result, until its limit is reached, which `over` says, or
    until there is an `obstacle`, which is asked again and again.

    A script that branched on unknown values is read for EXPLORE_SECONDS more. Raises UnknownReason for lines that no
    child has written.
    """
    report, first, unread = _Report(), inf, over
    while (seconds := limit.pause()) > 0:
        if not select.select([results], [], [], seconds)[0]:
            if unread := obstacle():
                break
            unread = over
            continue
        chunk = os.read(results, _CHUNK_BYTES)
        report.add(chunk or report.missing_end)
        if report.size > MAX_REPORT_BYTES:
            unread = f"the report of the dry run is larger than {MAX_REPORT_BYTES / (1 << 20):g} MiB"
            break
        if not chunk or (report.has_result and not report.has_branches):
            unread = ""
            break
        if report.has_result and first == inf:
            first = time.monotonic()
            limit.end_within(EXPLORE_SECONDS)
    return ReadReport(report.lines, unread, max(0.0, time.monotonic() - first))


class _Provisional(NamedTuple):
    """A result that a later line of the same way replaces."""

    line: ReportLine
    size: int
    """Bytes of the line."""


class _Report:
    """The lines that were read so far."""

    def __init__(self) -> None:
        self.lines: list[ReportLine] = []
        self.has_result = self.has_branches = False
        """Whether a way has its result, and whether there is more than one way."""
        self._kept = 0
        """Bytes of the lines that are kept."""
        self._open = bytearray()
        """The line that has not ended yet."""
        self._provisional: dict[tuple[Decision, ...], _Provisional] = {}

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._kept + len(self._open)

    @property
    def missing_end(self) -> bytes:
        """What ends the last line of a report that ends within it."""
        return b"\n" if self._open else b""

    def add(self, chunk: bytes) -> None:
        """Add the next bytes of the report. Raises UnknownReason."""
        head, *more = chunk.split(b"\n")
        self._open += head
        for piece in more:
            self._add_line(self._open)
            self._open = bytearray(piece)

    def _add_line(self, text: bytearray) -> None:
        try:
            line = ReportLine.from_json(bytes(text))
            replaced = self._provisional.pop(line.decisions, None) if line.kind in _RESULTS else None
        except (ValueError, TypeError, RecursionError):
            raise UnknownReason(NOT_OURS) from None
        if replaced:
            self.lines = [known for known in self.lines if known is not replaced.line]
            self._kept -= replaced.size
        if line.kind is ReportKind.PROVISIONAL:
            self._provisional[line.decisions] = _Provisional(line, len(text))
        self.lines.append(line)
        self._kept += len(text)
        self.has_result |= line.kind is ReportKind.FINAL
        self.has_branches |= line.kind is ReportKind.BRANCH
