"""The processes that this one has started, and theirs: found, and ended together with their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import psutil

from pharoah_system.parent_process import adopt_orphans

S = TypeVar("S", str, bytes)

SIDECAR_SECONDS = 2.5
"""A sidecar ends within 2 s of its job (`shutdown_timeout_seconds`); it is in a session of its own."""
STOP_SECONDS = 1.5
"""How long services may take to end after SIGTERM when they have nothing to finish."""
POLL_SECONDS = 0.02


def descendants(pid: int) -> Iterator[int]:
    """Children of a process and theirs. Cheaper than psutil, which reads every process of the machine."""
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))
    except OSError:  # it has ended meanwhile
        return


def command_line(pid: int) -> str:
    """Empty for a process that has ended. An orphan that has ended is waited for here, as its parent would."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            _reap(pid)
            return ""
        return " ".join(process.cmdline()) or process.name()
    except psutil.NoSuchProcess:
        return ""


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class ProcessScope:
    """What is started inside ends at the end: also what it has started itself, in whatever session that is."""

    def __init__(self, job_seconds: float = SIDECAR_SECONDS) -> None:
        """`job_seconds` is how long jobs and their sidecars may take to end after SIGTERM."""
        adopt_orphans()
        self._job_seconds = job_seconds
        self._before = set(descendants(os.getpid()))
        self._jobs: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> ProcessScope:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def own(self, job: subprocess.Popen[S]) -> subprocess.Popen[S]:
        """A job, which ends before the services that it uses."""
        self._jobs.append(job)
        return job

    def end(self, services: Iterable[subprocess.Popen[bytes]] = (), service_seconds: float = STOP_SECONDS) -> None:
        """Jobs first, whose sidecars then send their last reports; then `services`; then kill what is left."""
        services = list(services)
        self._terminate(self._jobs)
        _wait(lambda: not self.running() - _families(services), self._job_seconds)
        self._terminate(services)
        _wait(lambda: not self.running(), service_seconds if services else 0.0)
        while left := self.running():  # what is killed may have started something just before
            kill(left)
            time.sleep(POLL_SECONDS)
        self._jobs.clear()

    def running(self) -> set[int]:
        return {pid for pid in set(descendants(os.getpid())) - self._before if command_line(pid)}

    @staticmethod
    def _terminate(processes: Iterable[subprocess.Popen[Any]]) -> None:
        for process in processes:
            if process.poll() is None:
                process.terminate()


@contextmanager
def interrupted_once() -> Iterator[None]:
    """SIGINT and SIGTERM raise KeyboardInterrupt. The first one ends what runs; later ones do not disturb its end."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, _ignore)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(number: int, frame: FrameType | None) -> None:
    """A function, because processes that start inherit SIG_IGN."""


def _families(processes: Iterable[subprocess.Popen[Any]]) -> set[int]:
    return {pid for process in processes for pid in (process.pid, *descendants(process.pid))}


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # its parent is another process, or a Popen object has waited for it
        pass
