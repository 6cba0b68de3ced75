"""A watch over the event loop: whose step took how much of its thread's processor time.

A step goes from one `await` that waits to the next, and nobody else is served meanwhile. Processor time counts, so that
a machine that is busy with other things shows nothing. Two readings of the thread's clock take a microsecond.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

from pharoah_serving.costs import measure_steps

log = logging.getLogger("pharoah.provider.services")

LOGGED_SECONDS = 0.05
"""A step that takes longer is in the log: a verdict, which needs several steps, takes a tenth of that."""
MAX_STEP_SECONDS = 1.0
"""A caller with a longer step has its stream ended: half of the time that a tenant waits for an answer."""

T = TypeVar("T")


class StepWatch:
    """The steps of one call, and of the tasks that work for it. Belongs to the event loop."""

    def __init__(self, said: Callable[[], str], counted: Callable[[], None] = lambda: None) -> None:
        """`said()` names method and caller for the log; `counted()` hears of each long step."""
        self._said, self._counted = said, counted
        self.longest_seconds = 0.0
        """The longest step that was logged; each line of a call is about a longer one."""
        self._stepping = False
        """Whether a step goes on that is measured: what it awaits without waiting is part of it."""

    def begin(self) -> float | None:
        """A step begins: the thread's processor time. None inside another step, of which this one is a part."""
        if self._stepping:
            return None
        self._stepping = True
        return time.thread_time()

    def end(self, began: float | None) -> None:
        """A step has ended; `began` is what `begin` has returned."""
        if began is not None:
            self._stepping = False
            self.took(time.thread_time() - began)

    def took(self, seconds: float) -> None:
        """A step has ended."""
        if seconds > LOGGED_SECONDS:
            self._counted()
            if seconds > self.longest_seconds:
                self.longest_seconds = seconds
                log.warning("%s: a step took %.0f ms of the event loop", self._said(), 1e3 * seconds)


_watch: ContextVar[StepWatch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(watch: StepWatch) -> Iterator[None]:
    """While tasks that are started work for the call of this watch (`watch_work`)."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        with suppress(ValueError):  # gRPC closes a stream that was cancelled from another context
            _watch.reset(token)


async def watch_work(work: Awaitable[T], watch: StepWatch | None = None) -> T:
    """What `work` returns or raises, with each of its steps measured for `watch`, or for that of the current task."""
    if (chosen := watch or _watch.get()) is None:
        return await work
    return await measure_steps(work, chosen.begin, chosen.end)
