"""From step times to ratios: a run is compared with itself, and nothing absolute leaves the node."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

SKIPPED_STEPS = 5
"""Warm-up: allocation, autotuning and our own capture happen in the first steps."""
BASELINE_WINDOWS = 8
WINDOW_SECONDS = 1.0
WINDOW_STEPS = 4
"""At least this many steps, so that one checkpoint or evaluation pause never moves a window's median."""
QUANTUM = 64
"""Ratios are rounded to 1/64."""


@dataclass(frozen=True)
class Row:
    ended_at: float
    span_seconds: float
    rank: int
    step_ratio: float
    memory_ratio: float


@dataclass
class RankWindows:
    """Windows of one rank: at least 1 s and at least 4 steps each; the median of the first eight is the baseline."""

    rank: int
    window_seconds: float = WINDOW_SECONDS
    baseline_windows: int = BASELINE_WINDOWS
    _skip: int = SKIPPED_STEPS
    _open: list[float] = field(default_factory=list)
    _first: list[tuple[float, int]] = field(default_factory=list)
    baseline: tuple[float, float] | None = None
    """Seconds per step and resident bytes, once known."""

    def add(self, durations_ns: list[int], resident: int, now: float) -> list[Row]:
        """Step durations in order, resident memory after the last, unix seconds. Gives rows that became complete."""
        rows: list[Row] = []
        for duration in durations_ns:
            if self._skip:
                self._skip -= 1
                continue
            self._open.append(duration / 1e9)
            if sum(self._open) >= self.window_seconds and len(self._open) >= WINDOW_STEPS:
                rows += self._close(resident, now)
        return rows

    def _close(self, resident: int, now: float) -> list[Row]:
        typical, span = median(self._open), sum(self._open)
        self._open = []
        if self.baseline is None:
            self._first.append((typical, resident))
            if len(self._first) == self.baseline_windows:
                self.baseline = (median(t for t, _ in self._first), median(r for _, r in self._first))
            return []
        steps, memory = self.baseline
        return [Row(now, span, self.rank, _quantised(typical / steps), _quantised(resident / memory))]


def _quantised(ratio: float) -> float:
    return round(ratio * QUANTUM) / QUANTUM
