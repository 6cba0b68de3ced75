"""Work in a thread of its own: drivers that hang may hold all threads of the event loop's pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pharoah_system.own_thread import begin_in_own_thread

T = TypeVar("T")


async def in_own_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises.

    Where no thread can be started, the event loop itself does the work: a cell may have used up a limit of processes
    (pids.max, cgroups(7)), and the work may be to end that cell.
    """
    try:
        answer = begin_in_own_thread(work)
    except RuntimeError:
        return work()
    return await asyncio.wrap_future(answer)
