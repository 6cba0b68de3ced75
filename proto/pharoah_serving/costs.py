"""What a call costs the provider: seconds of the event loop, and CPU seconds of the threads that work for the call.

A step of the event loop counts by the clock: that long others wait, also when the machine is busy with other things.
The pool of threads that multiplies group elements is not counted: quotas bound what it does
(docs/adr/0023-nobody-uses-the-provider-up.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import coroutine
from typing import Any, TypeVar

B = TypeVar("B")
T = TypeVar("T")


class Cost:
    """Adds up seconds. Threads may add to it; the event loop takes the sum."""

    def __init__(self) -> None:
        self._parts: list[float] = []

    def add(self, seconds: float) -> None:
        """One more part; appending to a list is atomic, so threads need no lock."""
        self._parts.append(seconds)

    def take(self) -> float:
        """The seconds since the last call of this method."""
        parts, self._parts = self._parts, []
        return sum(parts)


_cost: ContextVar[Cost | None] = ContextVar("cost", default=None)


def current_cost() -> Cost | None:
    """What the current task works for is charged to this."""
    return _cost.get()


@contextmanager
def charging(cost: Cost) -> Iterator[None]:
    """While the work of this task, and of the tasks and threads that it starts, is charged to `cost`."""
    token = _cost.set(cost)
    try:
        yield
    finally:
        try:
            _cost.reset(token)
        except ValueError:  # gRPC closes a stream that was cancelled from another context
            pass


@coroutine
def measure_steps(work: Awaitable[T], begin: Callable[[], B], end: Callable[[B], None]) -> Generator[Any, Any, T]:
    """What `work` returns or raises. Each of its steps, from one `await` that waits to the next, stands between a call
    of `begin` and one of `end`, which gets what `begin` has returned."""
    steps = work.__await__()
    given: Any = None
    error: BaseException | None = None
    while True:
        begun = begin()
        try:
            awaited = steps.send(given) if error is None else steps.throw(error)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            end(begun)
        given, error = None, None
        try:
            given = yield awaited
        except BaseException as thrown:  # noqa: BLE001 - cancellation included: it is thrown into the work
            error = thrown


async def meter(work: Awaitable[T]) -> T:
    """What `work` returns or raises. The seconds of each of its steps are added to the current cost."""
    if (cost := _cost.get()) is None:
        return await work
    return await measure_steps(work, time.perf_counter, lambda began: cost.add(time.perf_counter() - began))


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """`asyncio.to_thread` whose CPU seconds are charged to whom the current task works for."""
    return await asyncio.to_thread(measure(function), *arguments)


def measure(function: Callable[..., T]) -> Callable[..., T]:
    """The function, with the CPU seconds of its thread added to the cost that is current now."""
    if (cost := _cost.get()) is None:
        return function

    def call(*arguments: Any) -> T:
        began = time.thread_time()
        try:
            return function(*arguments)
        finally:
            cost.add(time.thread_time() - began)

    return call
