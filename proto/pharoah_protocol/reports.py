"""From step times to reported levels: a run is compared with itself, in coarse steps, and nothing absolute leaves the
node.

How much the step times of a healthy run vary would reveal which job it is (`python -m evaluation privacy`). So a level
is reported only when it lies outside the dead band: the range of the run's own first windows, up to the outer fences of
J. W. Tukey (Exploratory Data Analysis, 1977); and only while three of the last five windows show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2
from statistics import median, quantiles
from typing import NamedTuple

from pharoah_protocol.monitoring_plan import PLAIN, RESTLESS, MonitoringPlan

SKIPPED_STEPS = 5
"""Warm-up: allocation, autotuning and our own capture happen in the first steps."""
BASELINE_WINDOWS = 12
WINDOW_SECONDS = 1.0
RESTLESS_RATIO = 0.05
"""A job counts as restless from this deviation on (see `deviation`)."""
PER_OCTAVE = 8
"""Levels are eighths of an octave: 2^(level/8) times the run's own baseline, 9 % apart."""
MAX_LEVEL = 32
STEP_DEAD_BAND_LEVEL = 1
"""Step times within 14 % of the baseline are never reported."""
MEMORY_DEAD_BAND_LEVEL = 4
"""Memory within 48 % of the baseline is never reported: healthy jobs grow, each in its way (docs/adr/0013)."""
WIDEST_DEAD_BAND_LEVEL = 6
"""However restless a run was at first, steps that take 1.76 times as long are reported (docs/adr/0013)."""
LAST_WINDOWS = 5
"""The median level of so many windows is reported, so three of them must agree."""
TUKEY_FACTOR = 3.0
"""Interquartile ranges from the quartiles to Tukey's outer fences."""
SMALLEST_VALUE = 1e-12
"""Smaller values, zero included, count as this one: zero has no logarithm."""


class LevelRatios(NamedTuple):
    """Step time and memory of a rank, each divided by its own baseline."""

    step: float
    memory: float


@dataclass(frozen=True)
class ReportedLevels:
    """Step time and memory of a rank against its own baseline: 0 is within the dead band, 8 is twice the baseline."""

    step: int = 0
    memory: int = 0

    @property
    def ratios(self) -> LevelRatios:
        """Step time and memory over the baseline."""
        return LevelRatios(step=ratio(self.step), memory=ratio(self.memory))


class _Window(NamedTuple):
    steps: list[float]
    """Seconds of each step."""
    resident_bytes: int
    """After the last step."""

    @property
    def step_seconds(self) -> float:
        """The median step."""
        return median(self.steps)


@dataclass
class RankWindows:
    """Windows of one rank: each lasts at least a second and has at least as many steps as the plan asks for, so that
    one pause for a checkpoint never moves the median of a window.

    A job whose first windows are restless gets the plan for restless jobs, whether or not a row names it. Their steps
    are then cut into longer windows.
    """

    plan: MonitoringPlan = PLAIN
    window_seconds: float = WINDOW_SECONDS
    baseline_windows: int = BASELINE_WINDOWS
    now: ReportedLevels = ReportedLevels()
    """Levels of the newest window; zero until the baseline is known."""
    _skip: int = SKIPPED_STEPS
    _open: list[float] = field(default_factory=list)
    """Step seconds of the window that is not complete."""
    _open_seconds: float = 0.0
    """Their sum, added up in their order: a second may have thousands of steps."""
    _first: list[_Window] = field(default_factory=list)
    """Windows until there is a baseline."""
    _steps: RunBaseline | None = None
    _memory: RunBaseline | None = None

    def add(self, durations_ns: Sequence[int], resident: int) -> list[ReportedLevels]:
        """Step durations in order, and resident bytes after the last. Returns levels of windows that are complete."""
        closed: list[ReportedLevels] = []
        for duration in durations_ns:
            if self._skip:
                self._skip -= 1
                continue
            self._open.append(step := duration / 1e9)
            self._open_seconds += step
            if self._open_seconds >= self.window_seconds and len(self._open) >= self.plan.window_steps:
                closed += self._close(resident)
        return closed

    def discard_open_window(self) -> None:
        """Steps while the node is measured are no evidence: the open window starts again, reported levels stay."""
        self._open, self._open_seconds = [], 0.0

    def _close(self, resident: int) -> list[ReportedLevels]:
        window = _Window(self._open, resident)
        self._open, self._open_seconds = [], 0.0
        if self._steps is None or self._memory is None:
            self._first.append(window)
            if len(self._first) == self.baseline_windows:
                self._fix_baseline()
            return []
        self.now = ReportedLevels(self._steps.push(window.step_seconds), self._memory.push(window.resident_bytes))
        return [self.now]

    def _fix_baseline(self) -> None:
        """The first windows are complete. They make the baseline, unless a restless job turns out to need longer ones
        and has too few of them."""
        steps = [step for window in self._first for step in window.steps]
        if self.plan != RESTLESS and deviation(steps) > RESTLESS_RATIO:
            self.plan = RESTLESS
            self._first, self._open = _lengthen(self._first, self.plan.window_steps)
            self._open_seconds = sum(self._open)
            if len(self._first) < self.baseline_windows:
                return
        self._steps = RunBaseline.from_values(
            [window.step_seconds for window in self._first], STEP_DEAD_BAND_LEVEL, self.plan.step_gain
        )
        self._memory = RunBaseline.from_values(
            [window.resident_bytes for window in self._first], MEMORY_DEAD_BAND_LEVEL
        )
        self._first = []


def _lengthen(windows: Sequence[_Window], window_steps: int) -> tuple[list[_Window], list[float]]:
    """The same steps in windows of at least so many, and the last steps, which do not fill a window."""
    longer, steps = list[_Window](), list[float]()
    for window in windows:
        steps += window.steps
        if len(steps) >= window_steps:
            longer.append(_Window(steps, window.resident_bytes))
            steps = []
    return longer, steps


@dataclass
class RunBaseline:
    """The baseline of one quantity, and the levels of the last windows.

    The lower quartile of the first windows is the baseline value: a run may begin slowly, and does not begin too fast.
    """

    baseline_value: float
    dead_band_octaves: float
    """Distance from the baseline value, on either side, within which the level is zero."""
    gain: float = 1.0
    _last: list[int] = field(default_factory=lambda: [0] * LAST_WINDOWS)

    @classmethod
    def from_values(cls, first: Sequence[float], dead_band_level: int, gain: float = 1.0) -> RunBaseline:
        """From at least two values, none negative; the dead band is no narrower than `dead_band_level`."""
        lower, _, upper = quantiles([_octaves(value) for value in first], n=4, method="inclusive")
        outer_fence = upper + TUKEY_FACTOR * (upper - lower)
        narrowest = (dead_band_level + 0.5) / PER_OCTAVE / gain
        widest = (WIDEST_DEAD_BAND_LEVEL + 0.5) / PER_OCTAVE
        return cls(2**lower, max(narrowest, min(outer_fence - lower, widest)), gain)

    def push(self, value: float) -> int:
        """Take the value of a further window; returns the reported level."""
        ratio = value / self.baseline_value
        found = 0 if abs(_octaves(ratio)) < self.dead_band_octaves else level(ratio, self.gain)
        self._last = [*self._last[1:], found]
        return sorted(self._last)[LAST_WINDOWS // 2]


def deviation(steps: Sequence[float]) -> float:
    """The median deviation of steps from the median step, relative to that step."""
    middle = median(steps)
    return median(abs(step - middle) for step in steps) / middle if middle else 0.0


def level(ratio: float, gain: float = 1.0) -> int:
    """The nearest level of a ratio to the baseline, clipped."""
    return max(-MAX_LEVEL, min(MAX_LEVEL, round(PER_OCTAVE * gain * _octaves(ratio))))


def ratio(level: int) -> float:
    """The ratio to the baseline that a level stands for."""
    return float(2 ** (level / PER_OCTAVE))


def _octaves(value: float) -> float:
    return log2(max(value, SMALLEST_VALUE))
