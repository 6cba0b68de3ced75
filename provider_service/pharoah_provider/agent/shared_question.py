"""A question that takes time, such as one to a driver: one thread asks, and all who want to know share its answer.

However many ask and give up, a driver that hangs holds one thread for each such question.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar

from pharoah_provider.agent.own_thread import in_own_thread

T = TypeVar("T")


@dataclass
class SharedQuestion(Generic[T]):
    """One question. Belongs to the event loop."""

    ask: Callable[[], T]
    """Runs in a thread."""
    hold_seconds: float = 0.0
    """How long an answer is given again."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that never jump."""
    _asking: asyncio.Task[T] | None = field(default=None, init=False)
    _asked_at: float = field(default=-inf, init=False)
    _answered_at: float = field(default=-inf, init=False)

    async def answer(self) -> T:
        """The answer, or what `ask` raises. A caller that is cancelled leaves the thread to the next one."""
        if self._asking is None or not self.holds:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(_note)
        return await asyncio.shield(self._asking)

    @property
    def holds(self) -> bool:
        """Whether nobody needs to ask again now: a thread asks, or its answer is recent."""
        return self._is_asked or self.clock() - self._answered_at < self.hold_seconds

    @property
    def waiting_seconds(self) -> float:
        """How long a thread has waited for its answer; 0 while none waits."""
        return self.clock() - self._asked_at if self._is_asked else 0.0

    @property
    def _is_asked(self) -> bool:
        return self._asking is not None and not self._asking.done()

    async def _ask(self) -> T:
        self._asked_at, self._answered_at = self.clock(), -inf
        answer = await in_own_thread(self.ask)
        self._answered_at = self.clock()
        return answer


def _note(task: asyncio.Task[T]) -> None:
    """A failure is for those who wait; asyncio must not log one that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
