"""What faults did to cells, and which signals showed it, by fault and dose.

A signal has moved in a run when its median after the onset is outside all that the same run showed before, and when it
has changed by more than the control runs, whose range is widened by its own width on both sides, because they are few.
Both are needed: a loss falls in every run, and the pressure on a node differs from one run to the next.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from pharoah_learning.evidence import DegradedRun
from pharoah_protocol.telemetry_samples import RESIDENT_BYTES, STEP_SECONDS
from pharoah_protocol.vocabulary import NO_FAULT
from pharoah_protocol.windows import MEMORY_RATIO, STEP_RATIO

MIN_BEFORE, MIN_AFTER = 3, 2
"""Samples with a signal before and after the onset, without which nothing is said about it."""
_NO_CHANGE = 1.0
"""A reported ratio within the dead band."""


@dataclass(frozen=True, kw_only=True)
class FaultResponse:
    """What one dose of one fault did, over all runs with it."""

    fault: str
    dose: float
    runs: int
    outcomes: Mapping[str, int]
    slowdown_ratio: float | None
    """Median step after the onset over that before, median over runs; None where no run shows both."""
    growth_bytes: float | None
    """Largest resident memory after the onset minus the median before, median over runs."""
    moved: Mapping[str, int]
    """Signal to the number of runs in which it has moved."""
    detected: int
    """Runs of which a window after the onset is outside the dead band, so that the monitor would hear of it."""
    detect_seconds: float | None
    """From the onset to that window, median over the runs."""


def fault_responses(runs: Sequence[DegradedRun]) -> list[FaultResponse]:
    """One response for each fault and dose, in this order; the control runs have the name `none`."""
    groups: dict[tuple[str, float], list[DegradedRun]] = defaultdict(list)
    for run in runs:
        groups[run.fault, run.dose].append(run)
    control = _control_changes(run for run in runs if run.fault == NO_FAULT)
    return [_response(fault, dose, own, control) for (fault, dose), own in sorted(groups.items())]


def _response(
    fault: str, dose: float, runs: Sequence[DegradedRun], control: Mapping[str, Sequence[float]]
) -> FaultResponse:
    detected = [seconds for run in runs if (seconds := _measure_detection_seconds(run)) is not None]
    return FaultResponse(
        fault=fault,
        dose=dose,
        runs=len(runs),
        outcomes=Counter(str(run.outcome) for run in runs),
        slowdown_ratio=_median([ratio for run in runs if (ratio := _slowdown(run)) is not None]),
        growth_bytes=_median([growth for run in runs if (growth := _growth(run)) is not None]),
        moved=dict(sorted(Counter(name for run in runs for name in _find_moved(run, control)).items())),
        detected=len(detected),
        detect_seconds=_median(detected),
    )


def _values(run: DegradedRun, name: str) -> _Around:
    found = [(sample.at_seconds, sample.values[name]) for sample in run.telemetry if name in sample.values]
    return _Around(
        before=[value for at, value in found if at < 0],
        after=[value for at, value in found if at >= 0],
    )


@dataclass(frozen=True)
class _Around:
    """The values of a signal before and after the onset."""

    before: list[float]
    after: list[float]

    @property
    def change(self) -> float | None:
        """How far the median has moved; None with too few samples."""
        if len(self.before) < MIN_BEFORE or len(self.after) < MIN_AFTER:
            return None
        return median(self.after) - median(self.before)

    @property
    def is_outside(self) -> bool:
        return not min(self.before) <= median(self.after) <= max(self.before)


def _names(run: DegradedRun) -> list[str]:
    return sorted({name for sample in run.telemetry for name in sample.values})


def _control_changes(runs: Iterable[DegradedRun]) -> dict[str, list[float]]:
    changes: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for name in _names(run):
            if (change := _values(run, name).change) is not None:
                changes[name].append(change)
    return changes


def _find_moved(run: DegradedRun, control: Mapping[str, Sequence[float]]) -> list[str]:
    """Signals that have moved in a run. Without a control run that has a signal, nothing is said about it."""
    found = []
    for name in _names(run):
        around = _values(run, name)
        change, usual = around.change, control.get(name)
        if change is not None and usual and around.is_outside and _is_unusual(change, usual):
            found.append(name)
    return found


def _is_unusual(change: float, usual: Sequence[float]) -> bool:
    least, most = min(usual), max(usual)
    return not 2 * least - most <= change <= 2 * most - least


def _slowdown(run: DegradedRun) -> float | None:
    steps = _values(run, STEP_SECONDS)
    if not steps.before or not steps.after or median(steps.before) <= 0:
        return None
    return median(steps.after) / median(steps.before)


def _growth(run: DegradedRun) -> float | None:
    memory = _values(run, RESIDENT_BYTES)
    return max(memory.after) - median(memory.before) if memory.before and memory.after else None


def _measure_detection_seconds(run: DegradedRun) -> float | None:
    """Seconds from the onset to the first window that is outside the dead band."""
    for window in run.windows:
        since = window.at_seconds - run.onset_seconds
        if since >= 0 and any(window.values.get(name, _NO_CHANGE) != _NO_CHANGE for name in (STEP_RATIO, MEMORY_RATIO)):
            return since
    return None


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
