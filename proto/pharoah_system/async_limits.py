"""Awaiting what a child does, for as long as the child's own time lasts (`had_time`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from pharoah_system.had_time import LimitClock

T = TypeVar("T")


async def within(limit: LimitClock, work: Coroutine[Any, Any, T]) -> T:
    """What comes of `work`, which is cancelled when the limit is reached, or when the caller is.

    Raises TimeoutError when the limit is reached.
    """
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            if not (seconds := limit.pause()):
                raise TimeoutError
            await asyncio.wait({task}, timeout=seconds)
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
