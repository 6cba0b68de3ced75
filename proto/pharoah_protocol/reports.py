"""From step times to levels: a run is compared with itself, in coarse steps, and nothing absolute leaves the node.

How restless a healthy run is would tell which job it is (`python -m evaluation privacy`). So a level is told only when
it lies outside of what the run's own first windows were like (the outer fences of J. W. Tukey, Exploratory Data
Analysis, 1977), and only while three of the last five windows show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2
from statistics import median, quantiles

from pharoah_protocol.monitoring_plan import PLAIN, RESTLESS, MonitoringPlan

SKIPPED_STEPS = 5
"""Warm-up: allocation, autotuning and our own capture happen in the first steps."""
BASELINE_WINDOWS = 12
WINDOW_SECONDS = 1.0
RESTLESS_RATIO = 0.05
"""Typical deviation of a step from the median step, relative to it, from which on a job counts as restless."""
PER_OCTAVE = 8
"""Levels are eighths of an octave: 2^(level/8) times the run's own baseline, 9 % apart."""
LARGEST_LEVEL = 32
QUIET_LEVEL = 1
"""Step times within 14 % of the baseline are told of no run."""
QUIET_MEMORY_LEVEL = 4
"""Nor is memory within 48 %: healthy jobs grow, each in its way."""
WIDEST_QUIET_LEVEL = 6
"""However restless a run began: steps that take 1.76 times as long are always told."""
LAST_WINDOWS = 5
"""Of which the median is told."""
OUTER_FENCE_RANGES = 3.0
"""Interquartile ranges from the quartiles to the outer fences."""


@dataclass(frozen=True)
class ReportedLevels:
    """How a rank does, against its own baseline; 0 is as ever, 8 is twice."""

    step: int = 0
    memory: int = 0

    @property
    def ratios(self) -> tuple[float, float]:
        return ratio(self.step), ratio(self.memory)


@dataclass
class RankWindows:
    """Windows of one rank, each of at least a second and as many steps as the plan says, so that one pause for a
    checkpoint never moves a window's median. A job that turns out restless is watched as restless jobs are, also if
    nobody knows it."""

    plan: MonitoringPlan = PLAIN
    window_seconds: float = WINDOW_SECONDS
    baseline_windows: int = BASELINE_WINDOWS
    now: ReportedLevels = ReportedLevels()
    """Of the newest window; plain zero until the baseline is known."""
    _skip: int = SKIPPED_STEPS
    _open: list[float] = field(default_factory=list)
    _first: list[tuple[float, int]] = field(default_factory=list)
    _seen: list[float] = field(default_factory=list)
    """Steps of the first windows."""
    _steps: RunBaseline | None = None
    _memory: RunBaseline | None = None

    def add(self, durations_ns: Sequence[int], resident: int) -> list[ReportedLevels]:
        """Step durations in order, resident memory after the last. Gives the windows that became complete."""
        closed: list[ReportedLevels] = []
        for duration in durations_ns:
            if self._skip:
                self._skip -= 1
                continue
            self._open.append(duration / 1e9)
            if sum(self._open) >= self.window_seconds and len(self._open) >= self.plan.window_steps:
                closed += self._close(resident)
        return closed

    def put_off(self) -> None:
        """Steps that say nothing: the open window begins anew, and what was told stays."""
        self._open = []

    def _close(self, resident: int) -> list[ReportedLevels]:
        steps, typical, self._open = self._open, median(self._open), []
        if self._steps is None or self._memory is None:
            self._first.append((typical, resident))
            self._seen += steps
            if len(self._first) == self.baseline_windows:
                self._settle()
            return []
        self.now = ReportedLevels(self._steps.told(typical), self._memory.told(resident))
        return [self.now]

    def _settle(self) -> None:
        """The first windows are known: the baseline, or once more with windows for a restless job."""
        if self.plan != RESTLESS and deviation(self._seen) > RESTLESS_RATIO:
            self.plan, self._first = RESTLESS, []
        else:
            self._steps = RunBaseline.of([step for step, _ in self._first], QUIET_LEVEL, self.plan.step_gain)
            self._memory = RunBaseline.of([held for _, held in self._first], QUIET_MEMORY_LEVEL)
        self._seen = []


@dataclass
class RunBaseline:
    """What a run was like in its first windows. The lower quartile counts as usual: a run may begin slowly, and does
    not begin too fast."""

    usual: float
    quiet: float
    """Octaves from it within which nothing is told."""
    gain: float = 1.0
    _last: list[int] = field(default_factory=lambda: [0] * LAST_WINDOWS)

    @classmethod
    def of(cls, first: Sequence[float], quiet_level: int, gain: float = 1.0) -> RunBaseline:
        """From at least two values, none negative; the quiet zone is no narrower than this level."""
        lower, _, upper = quantiles([_octaves(value) for value in first], n=4, method="inclusive")
        fence = upper + OUTER_FENCE_RANGES * (upper - lower)
        narrowest, widest = (quiet_level + 0.5) / PER_OCTAVE / gain, (WIDEST_QUIET_LEVEL + 0.5) / PER_OCTAVE
        return cls(2**lower, max(narrowest, min(fence - lower, widest)), gain)

    def told(self, value: float) -> int:
        """The level of a further window's value, as far as it is told."""
        away = value / self.usual
        found = 0 if abs(_octaves(away)) < self.quiet else level(away, self.gain)
        self._last = [*self._last[1:], found]
        return sorted(self._last)[LAST_WINDOWS // 2]


def deviation(steps: Sequence[float]) -> float:
    """How far a typical step is from the median step, relative to it."""
    middle = median(steps)
    return median(abs(step - middle) for step in steps) / middle if middle else 0.0


def level(ratio: float, gain: float = 1.0) -> int:
    """The nearest level of a ratio to the baseline, clipped."""
    return max(-LARGEST_LEVEL, min(LARGEST_LEVEL, round(PER_OCTAVE * gain * _octaves(ratio))))


def ratio(level: int) -> float:
    """What a level stands for."""
    return float(2 ** (level / PER_OCTAVE))


def _octaves(value: float) -> float:
    return log2(max(value, 1e-12))
