"""Which degraded runs, benchmark results and shared outcomes learning may use. None of these functions raises, whatever
was stored: what cannot be used is named (`LeftOut`) and the rest is learned from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, TypeVar

from pharoah_learning.evidence import BenchmarkResult, DegradedRun, EvidenceKind, LeftOut, OutcomeReport
from pharoah_protocol.bounds import MAX_RATIO, MAX_SECONDS, MAX_WINDOWS, check_durations, is_number
from pharoah_protocol.pseudonyms import PSEUDONYM_BYTES
from pharoah_protocol.windows import Window

T = TypeVar("T")
_PSEUDONYM = re.compile(f"[0-9a-f]{{{2 * PSEUDONYM_BYTES}}}")


def usable_degraded_runs(runs: Iterable[DegradedRun], left_out: LeftOut) -> list[DegradedRun]:
    """Runs whose windows follow each other in time and hold numbers that can have been measured."""
    return _usable(
        runs,
        lambda run: _can_be_windows(run.windows),
        lambda run: left_out.add(EvidenceKind.DEGRADED_RUN, run.node, "its windows cannot have been measured"),
    )


def usable_results(results: Iterable[BenchmarkResult], left_out: LeftOut) -> list[BenchmarkResult]:
    """Results whose seconds can have been measured; one without seconds states that nothing was measured."""
    return _usable(
        results,
        _can_be_result,
        lambda result: left_out.add(EvidenceKind.BENCHMARK_RESULT, result.node, "it cannot have been measured"),
    )


def usable_outcome_reports(reports: Iterable[OutcomeReport], left_out: LeftOut) -> list[OutcomeReport]:
    """Reports under a pseudonym, of an organisation, about a context."""
    return _usable(
        reports,
        _can_be_report,
        lambda report: left_out.add(EvidenceKind.OUTCOME_REPORT, report.organisation, "it is not about a pseudonym"),
    )


def _usable(items: Iterable[T], can_be: Callable[[T], bool], name_unusable: Callable[[T], None]) -> list[T]:
    """The items that can be what they claim, in their order; `name_unusable` is called with each of the others."""
    usable = []
    for item in items:
        if can_be(item):
            usable.append(item)
        else:
            name_unusable(item)
    return usable


def _can_be_result(result: BenchmarkResult) -> bool:
    if not all(isinstance(text, str) and text for text in (result.node, result.benchmark)):
        return False
    try:
        check_durations("seconds", result.seconds)
    except (ValueError, TypeError):
        return False
    if result.correct is False and result.seconds:
        return False  # a wrong answer has no time
    return isinstance(result.beside_job, bool)


def _can_be_windows(windows: Any) -> bool:
    if not isinstance(windows, tuple) or len(windows) > MAX_WINDOWS:
        return False
    if not all(isinstance(window, Window) and _can_be_window(window) for window in windows):
        return False
    return all(earlier.at_seconds < later.at_seconds for earlier, later in pairwise(windows))


def _can_be_window(window: Window) -> bool:
    in_time = is_number(window.at_seconds) and 0 <= window.at_seconds <= MAX_SECONDS
    return in_time and all(is_number(value) and abs(value) <= MAX_RATIO for value in window.values.values())


def _can_be_report(report: OutcomeReport) -> bool:
    texts = (report.name, report.organisation, report.context_id, *report.facts)
    if not all(isinstance(text, str) and text for text in texts) or not isinstance(report.failed, bool):
        return False
    return _PSEUDONYM.fullmatch(report.name) is not None and isinstance(report.period, int)
