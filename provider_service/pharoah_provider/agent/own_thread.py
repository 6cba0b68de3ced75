"""Work in a thread of its own: drivers that hang may hold all threads of the event loop's pool."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_own_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises. The exit of the process does not wait for the thread.

    Where no thread can be started, the event loop itself does the work: a cell may have used up a limit of processes
    (pids.max, cgroups(7)), and the work may be to end that cell.
    """
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # from now on nobody can cancel it under the thread

    def run() -> None:
        try:
            found = work()
        except BaseException as error:  # noqa: BLE001 - passed to the caller that waits
            answer.set_exception(error)
        else:
            answer.set_result(found)

    try:
        threading.Thread(target=run, daemon=True, name="pharoah-own").start()
    except RuntimeError:
        return work()
    return await asyncio.wrap_future(answer)
