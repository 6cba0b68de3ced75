"""Work on files of a home that may not answer, as one on a server of files that is away.

A thread of its own does each work: no other work of the sidecar waits for a thread, and the end of the sidecar does not
wait for that one. Works of one object are done one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pharoah_system.own_thread import begin_in_own_thread

T = TypeVar("T")


class FileWork:
    """Does work on files that others of the same object do not touch."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is how long the file system may take; what was begun goes on in its thread."""
        self.seconds = seconds
        self._busy: Future[Any] | None = None
        """What comes of the newest work."""
        self._until = 0.0
        """Until when that may take, in monotonic seconds. Where it does not answer, nobody waits for it twice."""

    async def result(self, work: Callable[[], T]) -> T:
        """What comes of the work.

        Raises what it raises, and TimeoutError when the file system does not answer in time. The work has not begun
        then if an earlier one is still going on, or no thread can be started: the job may have used up its processes.
        """
        while self._busy is not None and not self._busy.done():
            before = asyncio.wrap_future(self._busy)
            await asyncio.wait({before}, timeout=max(0.0, self._until - time.monotonic()))
            if before.cancel():  # it was not done
                raise TimeoutError
            before.exception()  # who began it has it, too
        try:
            begun = self._begin(work)
        except RuntimeError as error:
            raise TimeoutError(str(error)) from None
        async with asyncio.timeout(self.seconds):
            return await asyncio.wrap_future(begun)

    def begin(self, work: Callable[[], object]) -> None:
        """Do something that nobody waits for; it is left out when an earlier work is still going on."""
        if self._busy is None or self._busy.done():
            self._begin(work)

    def _begin(self, work: Callable[[], T]) -> Future[T]:
        answer = begin_in_own_thread(work)
        self._busy, self._until = answer, time.monotonic() + self.seconds
        return answer
