"""Windows of the steps of one rank: how long they took, and what its main thread did meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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


class Moment(NamedTuple):
    """What was read at one moment, in seconds of the monotonic clock."""

    at: float
    process: ProcessReading
    machine: MachineReading
    own_seconds: float
    """Processor time of all processes of the job on this machine."""


class Window(NamedTuple):
    """Some seconds of one rank. All but `median`, `blocked`, `others` and the times are of one step on average: of the
    mean step they have the share that they have of the time of the window. A window may end in the middle of a long
    step, whose time counts in the next one."""

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

    @property
    def waited(self) -> float:
        """In which the main thread waited for something else: data, other ranks, a disk, a device."""
        return max(0.0, self.took - self.computed - self.queued)


def own_seconds(view: View) -> float:
    """Processor time of all processes of the job on this machine."""
    return sum(process.computed_seconds + process.worker_seconds for process in view.processes.values())


@dataclass
class RankSteps:
    """The windows of one rank, newest last."""

    windows: deque[Window] = field(default_factory=lambda: deque(maxlen=KEPT_WINDOWS))
    count: int = 0
    """Windows so far."""
    _skip: int = SKIPPED_STEPS
    _steps: list[float] = field(default_factory=list)
    _began: Moment | None = None
    _blocked: list[bool] = field(default_factory=list)

    @property
    def warm(self) -> bool:
        """Whether the warm-up is over."""
        return not self._skip

    def stepped(self, seconds: Iterable[float]) -> None:
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
        if self._began is None:
            self._steps, self._began, self._blocked = [], now, []
            return None
        self._blocked.append(now.process.blocked)
        if now.at - self._began.at < WINDOW_SECONDS or not self._steps:
            return None
        window = _window(self._began, now, self._steps, self._blocked)
        self._steps, self._began, self._blocked = [], now, []
        self.windows.append(window)
        self.count += 1
        return window

    def discard(self) -> None:
        """What goes on now does not count: the open window begins anew with the next look."""
        self._steps, self._began = [], None


def _window(began: Moment, ended: Moment, steps: Sequence[float], blocked: Sequence[bool]) -> Window:
    seconds, took = ended.at - began.at, fmean(steps)
    of_step = took / seconds
    before, after = began.process, ended.process
    busy = ended.machine.busy_seconds - began.machine.busy_seconds
    throttled = after.throttled_seconds - before.throttled_seconds
    return Window(
        began_at=began.at,
        ended_at=ended.at,
        median=median(steps),
        took=took,
        computed=(after.main_computed_seconds - before.main_computed_seconds) * of_step,
        queued=(after.main_queued_seconds - before.main_queued_seconds) * of_step,
        process_computed=(after.computed_seconds - before.computed_seconds) * of_step,
        moved_bytes=(after.moved_bytes - before.moved_bytes) * of_step,
        blocked=fmean(blocked),
        disk_waited=(ended.machine.disk_waited_seconds - began.machine.disk_waited_seconds) * of_step,
        others=max(0.0, busy - (ended.own_seconds - began.own_seconds)) / seconds,
        cores=ended.machine.cores,
        stolen=_share(
            ended.machine.stolen_seconds - began.machine.stolen_seconds,
            ended.machine.wanted_seconds - began.machine.wanted_seconds,
        )
        * took,
        # The kernel adds up the time of all cores on which it stops the group, and there it would have computed.
        throttled=_share(throttled, throttled + ended.own_seconds - began.own_seconds) * took,
        worker_computed=max(0.0, after.worker_seconds - before.worker_seconds) * of_step,
        worker_moved=max(0, after.worker_moved_bytes - before.worker_moved_bytes) * of_step,
    )


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


def mean_window(windows: Sequence[Window]) -> Window:
    """The mean of each number over some windows, at least one: also what slows one step of many is in it."""
    return Window(*(fmean(numbers) for numbers in zip(*windows, strict=True)))


def typical_window(windows: Sequence[Window]) -> Window:
    """The median of each number over some windows, at least one: a single evaluation or checkpoint is not in it."""
    return Window(*(median(numbers) for numbers in zip(*windows, strict=True)))
