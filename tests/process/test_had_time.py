"""Limits run on the time that a child has had."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from pharoah_system.had_time import LimitClock, ThreadTimes, process_age_seconds, thread_times


class Machine:
    """A clock and the times of threads, as a test sets them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.threads: dict[int, ThreadTimes] = {}

    def limit(self, seconds: float, cores: int = 2) -> LimitClock:
        return LimitClock(seconds, 7, clock=lambda: self.now, times=lambda _: dict(self.threads), cores=cores)


@pytest.mark.parametrize(
    ("threads", "had"),
    [
        ({}, 10.0),  # the kernel counts nothing, or the child sleeps
        ({1: (10, 0)}, 10.0),
        ({1: (4, 6)}, 4.0),  # others had the cores
        ({1: (0, 0), 2: (4, 6)}, 4.0),  # the main thread waits for another one
        (dict.fromkeys(range(16), (1.25, 8.75)), 10.0),  # 16 threads on two cores, all of which they had
        (dict.fromkeys(range(16), (1.0, 9.0)), 6.0),  # others had four core seconds of twenty
        ({1: (0, 25)}, 0.0),  # counted late by the kernel: never more than the wall time
    ],
)
def test_a_limit_counts_what_a_child_has_had(threads: dict[int, tuple[float, float]], had: float) -> None:
    machine = Machine()
    limit = machine.limit(20.0)
    machine.now += 10.0
    machine.threads = {thread: ThreadTimes(*times) for thread, times in threads.items()}
    assert limit.get_remaining() == pytest.approx(20.0 - had)
    assert limit.get_remaining() == pytest.approx(20.0 - had), "nothing has happened since"


def test_a_limit_ends_in_wall_time_after_ten_times_its_seconds_and_sooner_where_it_is_shortened() -> None:
    machine = Machine()
    limit = machine.limit(3.0)
    for look in range(1, 30):
        machine.now += 1.0
        machine.threads = {1: ThreadTimes(0.0, float(look))}
        assert limit.get_remaining() == pytest.approx(min(3.0, 30.0 - look))
    machine.now += 1.0
    assert limit.pause() == 0.0
    limit = machine.limit(3.0)
    limit.end_within(0.2)
    assert limit.pause() == pytest.approx(0.2)


BUSY = "while True: pass"


def test_a_child_beside_busy_ones_has_had_less_than_the_wall_time() -> None:
    """Three loops on one core: each of them waits for most of the time."""
    core = min(os.sched_getaffinity(0))
    children = [
        subprocess.Popen(
            [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\n{BUSY}"], stderr=subprocess.DEVNULL
        )
        for _ in range(3)
    ]
    try:
        pid = children[0].pid
        before = thread_times(pid)
        if not before:
            pytest.skip("this kernel does not count what a thread waits for")
        limit = LimitClock(0.5, pid, cores=1)
        while (seconds := limit.pause()) > 0:  # it ends, though the child never does
            with contextlib.suppress(subprocess.TimeoutExpired):
                children[0].wait(seconds)
        assert thread_times(pid)[pid].queued - before[pid].queued > 0.5
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_the_age_of_a_process_counts_from_its_start() -> None:
    assert 0.0 < process_age_seconds() < 100_000
