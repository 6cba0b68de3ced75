"""The time that a process has had: wall time less what it waited for a processor (sched-stats, docs.kernel.org).

A limit in wall seconds ends work on a busy machine that would have been done on a quiet one. `LimitClock` counts what a
process and all that it has started could use.

The rule, for each look: the thread that has waited most since the look before counts, for the others wait for it or
beside it. But nobody waits for others where the processes themselves have used all cores: so at most the share of the
cores counts that they did not get. What neither runs nor waits for a processor, such as a read from a disk, has had its
time. Where the kernel counts no waiting (gVisor, kernels without CONFIG_SCHED_INFO), this is wall time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pharoah_system.process_family import descendants

MAX_WALL_RATIO = 10.0
"""A limit ends in wall time as well, after so many times its seconds: whoever waits has waited enough then; ours."""
LOOK_SECONDS = 0.5
"""How often at least `get_remaining` should be asked: a thread that begins and ends between two looks is not seen."""
_MIN_LOOK_SECONDS = 0.05
"""Between two looks, which take a millisecond where there are many threads."""
_NANOSECONDS = 1e9
_BEGAN = 19
"""The place of `starttime` after the name of the program, from 0 on (proc_pid_stat(5), field 22)."""


class ThreadTimes(NamedTuple):
    """What a thread has done since it began, in seconds."""

    computed: float
    queued: float
    """It was ready to run, and another one ran."""

    def since(self, before: ThreadTimes) -> ThreadTimes:
        """What it has done since it had done so much."""
        return ThreadTimes(self.computed - before.computed, self.queued - before.queued)


def parse_schedstat(text: bytes | str) -> ThreadTimes | None:
    """The times in a file `schedstat` of a thread or a process; None for a text without times. Kernels that count
    none (a build without CONFIG_SCHED_INFO, gVisor) have no such file, or one of zeros."""
    counts = text.split()[:2]
    if len(counts) < 2 or not all(count.isdigit() for count in counts):
        return None
    return ThreadTimes(int(counts[0]) / _NANOSECONDS, int(counts[1]) / _NANOSECONDS)


_NOTHING = ThreadTimes(0.0, 0.0)


def thread_times(pid: int) -> dict[int, ThreadTimes]:
    """The times of all threads of a process and of what it has started, by thread; empty where nothing counts them."""
    return {thread: times for process in (pid, *descendants(pid)) for thread, times in _threads_of(process)}


class LimitClock:
    """What is left of a limit on the time that a process has had. Asked from one thread."""

    def __init__(
        self,
        seconds: float,
        pid: int,
        *,
        wall_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        times: Callable[[int], dict[int, ThreadTimes]] = thread_times,
        cores: int = 0,
    ) -> None:
        """`wall_seconds` is the longest wall time; MAX_WALL_RATIO times the limit by default. `cores` are those that
        the process may use; by default those of the caller."""
        self._pid, self._clock, self._times = pid, clock, times
        self._cores = cores or len(os.sched_getaffinity(0))
        self._left = seconds
        now = clock()
        self._wall_deadline = now + (MAX_WALL_RATIO * seconds if wall_seconds is None else wall_seconds)
        self._looked_at, self._seen = now, times(pid)

    def get_remaining(self) -> float:
        """Seconds that the process may still have; 0 when the limit is reached."""
        now = self._clock()
        wall = max(0.0, now - self._looked_at)
        if wall < _MIN_LOOK_SECONDS:  # who reads a long answer asks after each part of it
            return max(0.0, min(self._left - wall, self._wall_deadline - now))
        seen = self._times(self._pid)
        since = [times.since(self._seen.get(thread, _NOTHING)) for thread, times in seen.items()]
        queued = max((times.queued for times in since), default=0.0)
        of_others = self._cores * wall - sum(times.computed for times in since)
        self._left -= wall - min(wall, max(0.0, min(queued, of_others)))
        self._looked_at, self._seen = now, seen
        return max(0.0, min(self._left, self._wall_deadline - now))

    @property
    def has_starved(self) -> bool:
        """Whether the limit in wall time is reached and time is left that could be had: the machine is too busy, which
        says nothing about what was limited. To be asked after `get_remaining`."""
        return self._left > 0 and self._clock() >= self._wall_deadline

    def end_within(self, seconds: float) -> None:
        """The limit is reached in so many seconds at the latest."""
        self._left = min(self._left, seconds)
        self._wall_deadline = min(self._wall_deadline, self._clock() + MAX_WALL_RATIO * seconds)

    def pause(self) -> float:
        """How long to wait, for anything, before `get_remaining` is asked again; 0 when the limit is reached."""
        return min(self.get_remaining(), LOOK_SECONDS)


def process_age_seconds() -> float:
    """How long this process has been running, its imports included; 0 where /proc does not show it."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            began = int(file.read().rpartition(b")")[2].split()[_BEGAN]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)


def _threads_of(process: int) -> Iterator[tuple[int, ThreadTimes]]:
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208 - names only, twice a second
            with contextlib.suppress(OSError):
                with open(f"/proc/{process}/task/{thread}/schedstat", "rb") as file:  # noqa: PTH123
                    times = parse_schedstat(file.read())
                if times is not None:
                    yield int(thread), times
