"""Work in threads side by side that ends together: when one part of it fails, or when the evaluation is interrupted.

A thread cannot be ended from outside. So work waits and runs programs through a `Stop`, which raises `Stopped` where
nothing is to go on; the work then cleans up after itself, as after any other exception.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
POLL_SECONDS = 0.5
"""How often a condition is looked at."""
END_SECONDS = 10.0
"""How long a program may take to end after SIGTERM, before it is killed. A job's sidecar ends within 2 s of it."""


class Stopped(Exception):
    """Another part of the work has failed, or the evaluation was interrupted."""


class Stop:
    """Whether the work goes on. All methods but `set` raise Stopped when it does not, also in the middle of a wait."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._event, self._now = threading.Event(), now

    def set(self) -> None:
        """Let nothing go on."""
        self._event.set()

    def check(self) -> None:
        """Go on, or raise."""
        if self._event.is_set():
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Wait so long; not at all for a number below zero."""
        if self._event.wait(max(0.0, seconds)):
            raise Stopped

    def wait_until(self, condition: Callable[[], object], seconds: float) -> bool:
        """Whether a condition came to hold within so many seconds."""
        deadline = self._now() + seconds
        while self._now() < deadline:
            if condition():
                return True
            self.sleep(POLL_SECONDS)
        return False

    def run(
        self, command: Sequence[str], given: str | None = None, folder: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, with `given` as its input, and keep what it prints. It ends when nothing is to go
        on."""
        self.check()
        pipe = subprocess.PIPE
        stdin = subprocess.DEVNULL if given is None else pipe
        with subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, text=True, cwd=folder) as process:
            while True:
                try:
                    out, errors = process.communicate(given, timeout=POLL_SECONDS)
                    return subprocess.CompletedProcess(command, process.returncode, out, errors)
                except subprocess.TimeoutExpired:
                    given = None  # it is on its way, and must not be handed over twice
                if self._event.is_set():
                    _end(process)
                    raise Stopped


def side_by_side(work: Callable[[T, Stop], R], items: Iterable[T], threads: int) -> list[R]:
    """The results of the work on each item, in the order of the items, which so many threads do.

    When one fails or this thread is interrupted, no further item begins, and those that are at work end. All threads
    have ended when this function returns or raises.
    """
    stop, futures = Stop(), list[Future[R]]()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                futures.append(pool.submit(_begun, work, item, stop))
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()  # what waits for a thread does not begin any more
    _raise_first(futures)
    return [future.result() for future in futures]


def _begun(work: Callable[[T, Stop], R], item: T, stop: Stop) -> R:
    stop.check()
    return work(item, stop)


def _raise_first(futures: Iterable[Future[R]]) -> None:
    """Raise what has failed by itself, rather than what ended because of it."""
    for future in futures:
        failure = future.exception()
        if failure is not None and not isinstance(failure, Stopped):
            raise failure


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
