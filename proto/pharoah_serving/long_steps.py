"""A watch over the event loop: whose step took how much of its thread's processor time.

A step goes from one `await` that waits to the next, and nobody else is served meanwhile. Processor time counts, so that
a machine that is busy with other things shows nothing. Two readings of the thread's clock take a microsecond.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import coroutine
from typing import Any, TypeVar

log = logging.getLogger("pharoah.provider.services")

LOGGED_SECONDS = 0.05
"""A step that takes longer is in the log: a verdict, which needs several steps, takes a tenth of that."""
MOST_STEP_SECONDS = 1.0
"""A caller with a longer step has its stream ended: half of the time that a tenant waits for an answer."""

T = TypeVar("T")


class StepWatch:
    """The steps of one call, and of the tasks that work for it. Belongs to the event loop."""

    def __init__(self, said: Callable[[], str], counted: Callable[[], None] = lambda: None) -> None:
        """`said()` names method and caller for the log; `counted()` hears of each long step."""
        self._said, self._counted = said, counted
        self.longest_seconds = 0.0
        """The longest step that was logged; each line of a call is about a longer one."""
        self.stepping = False
        """Whether a step goes on that is measured: what it awaits without waiting is part of it."""

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
    """While tasks that are started work for the call of this watch (`watched`)."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        with suppress(ValueError):  # gRPC closes a stream that was cancelled from another context
            _watch.reset(token)


@coroutine
def watched(work: Awaitable[T], watch: StepWatch | None = None) -> Generator[Any, Any, T]:
    """What `work` returns or raises, with each of its steps measured for `watch`, or for that of the current task."""
    watch, steps = watch or _watch.get(), work.__await__()
    given: Any = None
    error: BaseException | None = None
    while True:
        outermost = watch is not None and not watch.stepping
        began = _begun(watch) if watch is not None and outermost else 0.0
        try:
            awaited = steps.send(given) if error is None else steps.throw(error)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            if watch is not None and outermost:
                watch.stepping = False
                watch.took(time.thread_time() - began)
        given, error = None, None
        try:
            given = yield awaited
        except BaseException as thrown:  # noqa: BLE001 - cancellation included: it is thrown into the work
            error = thrown


def _begun(watch: StepWatch) -> float:
    watch.stepping = True
    return time.thread_time()
