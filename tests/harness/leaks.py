"""What a test leaves behind: processes, threads, tasks, transports and folders that outlive it."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.harness.processes import command_line, descendants, kill

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
        return cls(frozenset(descendants(os.getpid())), threads, folders)

    def left_behind(self) -> list[str]:
        """What has come since and does not end within the grace period, in words. Ends the processes among it."""
        deadline = time.monotonic() + GRACE_SECONDS
        while found := self._new():
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        if found:
            kill(pid for pid in Belongings.now().processes - self.processes if _described(pid))
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


def _described(pid: int) -> str:
    """Empty for a process that has ended or may stay."""
    command = command_line(pid)
    if not command or any(part in command for part in SHARED_PROCESSES):
        return ""
    return f"process {pid}: {command[:200]}"
