"""From step times to levels: a run is compared with itself, in coarse steps, and nothing absolute leaves the node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2
from statistics import median, quantiles

from pharoah.plan import PLAIN, Plan

SKIPPED_STEPS = 5
"""Warm-up: allocation, autotuning and our own capture happen in the first steps."""
BASELINE_WINDOWS = 8
WINDOW_SECONDS = 1.0
PER_OCTAVE = 8
"""Levels are eighths of an octave: 2^(level/8) times the run's own baseline, 9 % apart."""
LARGEST_LEVEL = 32
QUIET_LEVEL = 1
"""Within 14 % of the baseline nothing is told: how restless a healthy job is would say which one it is
(`python -m evaluation privacy`)."""


@dataclass(frozen=True)
class Levels:
    """How a rank does, against its own baseline; 0 is as ever, 8 is twice."""

    step: int = 0
    memory: int = 0

    @property
    def ratios(self) -> tuple[float, float]:
        return ratio(self.step), ratio(self.memory)


@dataclass
class RankWindows:
    """Windows of one rank, each of at least a second and as many steps as the plan says, so that one pause for a
    checkpoint never moves a window's median. The lower quartile of the first eight is the baseline: a run may begin
    slowly, and does not begin too fast."""

    plan: Plan = PLAIN
    window_seconds: float = WINDOW_SECONDS
    baseline_windows: int = BASELINE_WINDOWS
    now: Levels = Levels()
    """Of the newest window; plain zero until the baseline is known."""
    _skip: int = SKIPPED_STEPS
    _open: list[float] = field(default_factory=list)
    _first: list[tuple[float, int]] = field(default_factory=list)
    _baseline: tuple[float, float] | None = None
    """Seconds per step and resident bytes."""

    def add(self, durations_ns: Sequence[int], resident: int) -> list[Levels]:
        """Step durations in order, resident memory after the last. Gives the windows that became complete."""
        closed: list[Levels] = []
        for duration in durations_ns:
            if self._skip:
                self._skip -= 1
                continue
            self._open.append(duration / 1e9)
            if sum(self._open) >= self.window_seconds and len(self._open) >= self.plan.window_steps:
                closed += self._close(resident)
        return closed

    def _close(self, resident: int) -> list[Levels]:
        typical = median(self._open)
        self._open = []
        if self._baseline is None:
            self._first.append((typical, resident))
            if len(self._first) == self.baseline_windows:
                self._baseline = _lower_quartile([t for t, _ in self._first]), median(r for _, r in self._first)
            return []
        steps, memory = self._baseline
        self.now = Levels(level(typical / steps, self.plan.step_gain), level(resident / memory))
        return [self.now]


def level(ratio: float, gain: float = 1.0) -> int:
    """The nearest level of a ratio to the baseline, clipped, and quiet near it."""
    nearest = round(PER_OCTAVE * gain * log2(max(ratio, 1e-9)))
    return 0 if abs(nearest) <= QUIET_LEVEL else max(-LARGEST_LEVEL, min(LARGEST_LEVEL, nearest))


def ratio(level: int) -> float:
    """What a level stands for."""
    return float(2 ** (level / PER_OCTAVE))


def _lower_quartile(values: Sequence[float]) -> float:
    return quantiles(values, n=4, method="inclusive")[0] if len(values) > 1 else values[0]
