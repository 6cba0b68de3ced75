"""Changes that are finished once they have begun, whoever has asked for them and gone away."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from pharoah_serving.costs import meter
from pharoah_serving.long_steps import watch_work

T = TypeVar("T")


async def _meter(work: Coroutine[Any, Any, T]) -> T:
    return await meter(watch_work(work))


async def complete_despite_cancellation(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns or raises. A caller that is cancelled meanwhile is cancelled when the work is done."""
    task = asyncio.create_task(_meter(work))
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        if not task.cancelled():
            task.exception()  # the caller is gone, so nobody else retrieves it
        raise asyncio.CancelledError
    return task.result()
