"""Waiting for a condition, in place of a sleep: as short as possible, and with a clear error when it never holds."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

from pharoah_system.had_time import LOOK_SECONDS, LimitClock

POLL_SECONDS = 0.02


class _Deadline:
    """Seconds that this process and all that it has started have had, so that a busy machine fails no test."""

    def __init__(self, what: str, seconds: float) -> None:
        self._what, self._seconds = what, seconds
        self._limit = LimitClock(seconds, os.getpid())
        self._look_at = time.monotonic() + LOOK_SECONDS

    def check(self) -> None:
        """Raises TimeoutError."""
        if time.monotonic() < self._look_at and self._seconds >= LOOK_SECONDS:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        if not self._limit.get_remaining():
            raise TimeoutError(f"waited {self._seconds:g} s for {self._what}")


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = 10.0) -> None:
    """Wait inside an event loop. Raises TimeoutError that names `what` was waited for."""
    deadline = _Deadline(what, seconds)
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        deadline.check()
        await asyncio.sleep(POLL_SECONDS)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
    """Wait outside an event loop. Raises TimeoutError that names `what` was waited for."""
    deadline = _Deadline(what, seconds)
    while not condition():
        deadline.check()
        time.sleep(POLL_SECONDS)
