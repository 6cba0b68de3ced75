"""Background tasks that end with their owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

log = logging.getLogger("pharoah.tasks")


class OwnedTasks:
    """The scope of some background tasks: `async with` cancels and awaits all of them at its end.

    Unlike asyncio.TaskGroup, a task that fails ends neither the scope nor the other tasks: its failure is logged.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> OwnedTasks:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` in the background."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    async def close(self) -> None:
        """Cancel every task and wait until it has ended; a second call finds nothing to do."""
        cancelled = False
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            try:
                await asyncio.wait(self._tasks)
                await asyncio.sleep(0)  # for the callbacks that remove them
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a background task failed", exc_info=error)
