"""Work in a thread of its own: where a driver or a file system hangs, nothing else waits for that thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def begin_in_own_thread(work: Callable[[], T]) -> Future[T]:
    """What comes of `work`, which goes on whoever stops waiting. The exit of the process does not wait for the thread.

    Raises RuntimeError where no thread can be started; the work has not begun then.
    """
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # from now on nobody can cancel it under the thread
    threading.Thread(target=_into, args=(answer, work), name="pharoah-own", daemon=True).start()
    return answer


def _into(answer: Future[T], work: Callable[[], T]) -> None:
    """Do some work and put what comes of it into a future."""
    try:
        found = work()
    except BaseException as error:  # noqa: BLE001 - it is raised where the answer is waited for
        answer.set_exception(error)
    else:
        answer.set_result(found)
