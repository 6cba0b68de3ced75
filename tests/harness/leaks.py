"""What a test leaves behind: processes, threads, tasks, transports and folders that outlive it."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

T = TypeVar("T")

GRACE_SECONDS = 10.0
"""How long what a test has started may take to end by itself. A sidecar that cannot reach its provider takes 2 s."""
TASK_GRACE_SECONDS = 2.0
FOLDER_PATTERN = "pharoah-*"
"""Folders that Pharoah makes in the system's folder for temporary files."""
SHARED_PROCESSES = {
    "multiprocessing.resource_tracker": "Python keeps one for the whole process",
    "multiprocessing.forkserver": "Python keeps one for the whole process",
}
"""Part of a command line to the reason why such a process may outlive a test."""
SHARED_THREADS = {"pharoah-group": "the pool for the arithmetic of the group belongs to the process"}
"""Prefix of a thread's name to the reason why it may outlive a test."""

_run = asyncio.run


@dataclass(frozen=True)
class Belongings:
    """What there is at one moment. What a fixture of a larger scope has started is there before the test."""

    processes: frozenset[int]
    threads: frozenset[threading.Thread]
    folders: frozenset[Path]

    @classmethod
    def now(cls) -> Belongings:
        threads = frozenset(
            thread
            for thread in threading.enumerate()
            if not thread.daemon and not thread.name.startswith(tuple(SHARED_THREADS))
        )
        folders = frozenset(Path(tempfile.gettempdir()).glob(FOLDER_PATTERN))
        return cls(frozenset(_descendants(os.getpid())), threads, folders)

    def left_behind(self) -> list[str]:
        """What has come since and does not end within the grace period, in words. Ends the processes among it."""
        deadline = time.monotonic() + GRACE_SECONDS
        while found := self._new():
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        for pid in set(_descendants(os.getpid())) - self.processes if found else ():
            _end(pid)
        return found

    def _new(self) -> list[str]:
        now = Belongings.now()
        processes = [_described(pid) for pid in sorted(now.processes - self.processes)]
        threads = [f"thread {thread.name}" for thread in now.threads - self.threads]
        folders = [f"folder {folder}" for folder in now.folders - self.folders]
        return [*filter(None, processes), *threads, *folders]


class LoopCheck:
    """Stands in for `asyncio.run` while a test runs, and lists the tasks that the main coroutine has left running."""

    def __init__(self) -> None:
        self.left: list[str] = []
        self.used = False

    def run(self, main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
        self.used = True
        return _run(self._checked(main), debug=debug)

    def collect_transports(self) -> None:
        """Let a transport that nobody has closed warn now, in the test that has left it."""
        if self.used:
            gc.collect()

    async def _checked(self, main: Coroutine[Any, Any, T]) -> T:
        try:
            return await main
        finally:
            deadline = time.monotonic() + TASK_GRACE_SECONDS
            while (left := asyncio.all_tasks() - {asyncio.current_task()}) and time.monotonic() < deadline:
                await asyncio.sleep(0.001)
            self.left += [f"task {task.get_coro()}" for task in left]


def _descendants(pid: int) -> Iterator[int]:
    """Children of a process and theirs; far cheaper than psutil, which reads every process of the machine."""
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield int(child)
                yield from _descendants(int(child))
    except OSError:  # it has ended meanwhile
        return


def _described(pid: int) -> str:
    """Empty for a process that has ended or may stay. An orphan that has ended is waited for here."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            _reap(pid)
            return ""
        command = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
    return "" if any(part in command for part in SHARED_PROCESSES) else f"process {pid}: {command[:200]}"


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # its parent is another process, or a Popen object has waited for it
        pass


def _end(pid: int) -> None:
    if _described(pid):
        try:
            psutil.Process(pid).kill()
        except psutil.NoSuchProcess:
            pass
