"""Windows of the steps of one rank: how long they took, and what its main thread did meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import floor
from statistics import fmean, median
from typing import NamedTuple

from pharoah.local_alerts._detector import View
from pharoah.local_alerts._readings import MachineReading, ProcessReading

WINDOW_SECONDS = 5.0
"""Shorter windows hold too few steps to average out what a scheduler does; three of longer ones would be late."""
SKIPPED_STEPS = 5
"""Warm-up, as in `pharoah_protocol.reports`."""
KEPT_WINDOWS = 120
"""Ten minutes."""
MEASURED_SHARE, BURST_SECONDS = 0.125, 0.1
"""Micro-benchmarks beside a job work for a tenth of the time, in bursts of 0.1 s, and a little longer where a repeat
goes on beyond a burst (ADR 44). So this share of its time is what they cost a job at most, where both want the same
core."""
OLDEST_PART_SECONDS = 60.0
"""A window that went on before this is left out: it would join what does not belong together."""


class Moment(NamedTuple):
    """What was read at one moment, in seconds of the monotonic clock."""

    at: float
    process: ProcessReading
    machine: MachineReading
    own_seconds: float
    """Processor time of all processes of the job on this machine."""
    measured: bool = False
    """Whether micro-benchmarks run beside the job."""


class Window(NamedTuple):
    """Some seconds of one rank. All but `median`, `blocked`, `others` and the times are of one step on average: of the
    mean step they have the share that they have of the time of the window. A window may end in the middle of a long
    step, whose time counts in the next one. In a window that was measured, `median`, `took` and `queued` are what they
    were at least without the micro-benchmarks."""

    began_at: float
    ended_at: float
    median: float
    """The median step."""
    took: float
    """The mean step."""
    computed: float
    """In which the main thread computed."""
    queued: float
    """In which it was ready to compute, and another process had its core."""
    waited: float
    """In which it waited for something else: data, other ranks, a disk, a device."""
    process_computed: float
    """Processor time of all threads of the process."""
    moved_bytes: float
    blocked: float
    """Share of the looks at which the main thread waited for a device."""
    disk_waited: float
    """In which some process of this machine waited for a disk."""
    others: float
    """How many cores other processes of this machine used, as a mean."""
    cores: float
    """How many the machine has."""
    stolen: float
    """In which other virtual machines had a core of the job while something was ready to run there."""
    throttled: float
    """In which the job's control group had used up its processor time."""
    worker_computed: float
    """Processor time of the processes that the rank has started, such as workers that load its data."""
    worker_moved: float
    """What these have read and written, in bytes."""
    measured: float
    """1 where micro-benchmarks ran beside the job, else 0."""


def own_seconds(view: View) -> float:
    """Processor time of all processes of the job on this machine."""
    return sum(process.computed_seconds + process.worker_seconds for process in view.processes.values())


class _Amounts(NamedTuple):
    """What was counted between two moments: seconds, and bytes for what was moved."""

    seconds: float = 0.0
    computed: float = 0.0
    queued: float = 0.0
    process_computed: float = 0.0
    moved_bytes: float = 0.0
    disk_waited: float = 0.0
    busy: float = 0.0
    own: float = 0.0
    stolen: float = 0.0
    wanted: float = 0.0
    throttled: float = 0.0
    worker_computed: float = 0.0
    worker_moved: float = 0.0

    @classmethod
    def between(cls, began: Moment, ended: Moment) -> _Amounts:
        before, after = began.process, ended.process
        return cls(
            seconds=ended.at - began.at,
            computed=after.main_computed_seconds - before.main_computed_seconds,
            queued=after.main_queued_seconds - before.main_queued_seconds,
            process_computed=after.computed_seconds - before.computed_seconds,
            moved_bytes=after.moved_bytes - before.moved_bytes,
            disk_waited=ended.machine.disk_waited_seconds - began.machine.disk_waited_seconds,
            busy=ended.machine.busy_seconds - began.machine.busy_seconds,
            own=ended.own_seconds - began.own_seconds,
            stolen=ended.machine.stolen_seconds - began.machine.stolen_seconds,
            wanted=ended.machine.wanted_seconds - began.machine.wanted_seconds,
            throttled=after.throttled_seconds - before.throttled_seconds,
            worker_computed=after.worker_seconds - before.worker_seconds,
            worker_moved=after.worker_moved_bytes - before.worker_moved_bytes,
        )

    def plus(self, other: _Amounts) -> _Amounts:
        return _Amounts(*map(sum, zip(self, other, strict=True)))


@dataclass
class _OpenWindow:
    """A window that is not complete. It may have several parts, between which the other kind of window went on."""

    _steps: list[float] = field(default_factory=list)
    _blocked: list[bool] = field(default_factory=list)
    _parts: _Amounts = field(default_factory=_Amounts)
    """The parts that are over."""
    _began_at: float = 0.0
    """When the first part began."""
    _began: Moment | None = None
    """When the part that goes on began; None while there is none."""
    _last: Moment | None = None

    def pause(self) -> None:
        """The part that goes on ends with the look before this one."""
        if self._began is not None and self._last is not None:
            self._parts = self._parts.plus(_Amounts.between(self._began, self._last))
        self._began = self._last = None

    def look(self, now: Moment, steps: Sequence[float]) -> Window | None:
        """`steps` ended since the look before; they count unless a part begins with this look."""
        if self._began is None:
            self._begin_part(now)
            return None
        self._last = now
        self._steps += steps
        self._blocked.append(now.process.blocked)
        amounts = self._parts.plus(_Amounts.between(self._began, now))
        if amounts.seconds < WINDOW_SECONDS or not self._steps:
            return None
        window = _window(self._began_at, now, amounts, self._steps, self._blocked)
        self._clear(now.at)
        self._began = now
        return window

    def _begin_part(self, now: Moment) -> None:
        if self._parts.seconds == 0 or now.at - self._began_at > OLDEST_PART_SECONDS:
            self._clear(now.at)
        self._began = self._last = now

    def _clear(self, at: float) -> None:
        self._steps, self._blocked, self._parts, self._began_at = [], [], _Amounts(), at


@dataclass
class RankSteps:
    """The windows of one rank, newest last. Each is either with or without micro-benchmarks beside the job."""

    windows: deque[Window] = field(default_factory=lambda: deque(maxlen=KEPT_WINDOWS))
    count: int = 0
    """Windows so far."""
    _skip: int = SKIPPED_STEPS
    _steps: list[float] = field(default_factory=list)
    """Since the last look."""
    _plain: _OpenWindow = field(default_factory=_OpenWindow)
    _measured: _OpenWindow = field(default_factory=_OpenWindow)

    @property
    def warm(self) -> bool:
        """Whether the warm-up is over."""
        return not self._skip

    def note_step(self, seconds: Iterable[float]) -> None:
        """Steps in order."""
        for one in seconds:
            if self._skip:
                self._skip -= 1
            else:
                self._steps.append(one)

    def look(self, now: Moment) -> Window | None:
        """What is read about once a second. Gives a window that is complete, in which at least one step ended."""
        if not self.warm:
            return None
        steps, self._steps = self._steps, []
        going, other = (self._measured, self._plain) if now.measured else (self._plain, self._measured)
        other.pause()
        window = going.look(now, steps)
        if window is not None:
            self.windows.append(window)
            self.count += 1
        return window


def _window(
    began_at: float, ended: Moment, amounts: _Amounts, steps: Sequence[float], blocked: Sequence[bool]
) -> Window:
    mean, of_step = fmean(steps), fmean(steps) / amounts.seconds
    cost = MEASURED_SHARE * mean if ended.measured else 0.0
    took, computed = mean - cost, amounts.computed * of_step
    queued = max(0.0, amounts.queued * of_step - cost)
    return Window(
        began_at=began_at,
        ended_at=ended.at,
        median=_median_without_bursts(steps) if ended.measured else median(steps),
        took=took,
        computed=computed,
        queued=queued,
        waited=max(0.0, took - computed - queued),
        process_computed=amounts.process_computed * of_step,
        moved_bytes=amounts.moved_bytes * of_step,
        blocked=fmean(blocked),
        disk_waited=amounts.disk_waited * of_step,
        others=max(0.0, amounts.busy - amounts.own) / amounts.seconds,
        cores=ended.machine.cores,
        stolen=_share(amounts.stolen, amounts.wanted) * mean,
        # The kernel adds up the time of all cores on which it stops the group, and there it would have computed.
        throttled=_share(amounts.throttled, amounts.throttled + amounts.own) * mean,
        worker_computed=max(0.0, amounts.worker_computed) * of_step,
        worker_moved=max(0.0, amounts.worker_moved) * of_step,
        measured=float(ended.measured),
    )


def _median_without_bursts(steps: Sequence[float]) -> float:
    """What the median step was at least without micro-benchmarks, if those that met one of their bursts are the slowest
    ones."""
    met = min(1.0, MEASURED_SHARE * (1 + fmean(steps) / BURST_SECONDS))
    return sorted(steps)[floor((1 - met) * (len(steps) - 1) / 2)]


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


def typical_window(windows: Sequence[Window]) -> Window:
    """The median of each number over some windows, at least one: a single evaluation or checkpoint is not in it. It
    lasts from the beginning of the windows to their end. `blocked` is the mean, because the looks are few. The parts of
    a step add up to the step, as in each of the windows: their medians alone need not, where windows are of two kinds.
    """
    typical = Window(*(median(numbers) for numbers in zip(*windows, strict=True)))
    parts = typical.computed + typical.queued + typical.waited
    scale = typical.took / parts if parts > 0 else 1.0
    return typical._replace(
        computed=typical.computed * scale,
        queued=typical.queued * scale,
        waited=typical.waited * scale,
        began_at=min(window.began_at for window in windows),
        ended_at=max(window.ended_at for window in windows),
        blocked=fmean(window.blocked for window in windows),
    )
