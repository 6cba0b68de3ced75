"""Waiting for a condition, in place of a sleep: as short as possible, and with a clear error when it never holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

POLL_SECONDS = 0.02


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = 10.0) -> None:
    """Wait inside an event loop. Raises TimeoutError that names `what` was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        _check(deadline, what, seconds)
        await asyncio.sleep(POLL_SECONDS)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
    """Wait outside an event loop. Raises TimeoutError that names `what` was waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        _check(deadline, what, seconds)
        time.sleep(POLL_SECONDS)


def _check(deadline: float, what: str, seconds: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"waited {seconds:g} s for {what}")
