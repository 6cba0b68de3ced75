"""When the messages of a run leave: at multiples of a fixed time after the last thing that the other side has seen.

A message that left as soon as it was ready would show how long its preparation took, and that depends on the job. So a
message waits for the next multiple of a fixed grid, counted from the answer before it, and an answer that is refused,
fails or does not come in time counts as any other (docs/adr/0025).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import ceil

from pharoah_protocol.voprf import group, libsodium

GRID_SECONDS = 0.005
"""From an answer to the next message of a question. The work between them is that of checking what the provider has
signed, and does not depend on the job; `timing_work_p999_seconds` of `python -m evaluation hardening` measures it.
Where tables must be read and checked first, the message leaves some multiples later."""
SLOW_GRID_SECONDS = 0.1
"""The same on a machine without libsodium, where two proofs of a pseudonym are checked between two messages. The
provider may know that a tenant has no libsodium: that says nothing about its job."""
DECIDE_SECONDS = 0.5
"""The decision leaves at a multiple of this after the last answer. Until then the answer is checked and opened, a
verdict is made and the job is launched, which takes a different time for each job."""
JOIN_SECONDS = 2.0
"""A run joins at a multiple of this after the last answer, for the same reason."""


def grid_seconds() -> float:
    """The grid of this machine. It depends on the implementation of the group and on nothing else."""
    return GRID_SECONDS if group.backend() is libsodium else SLOW_GRID_SECONDS


class MessageTimes:
    """The times of one run's messages. Single-threaded: belongs to the event loop."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`clock` gives monotonic seconds."""
        self._clock, self._sleep = clock, sleep
        self._last_seen: float | None = None

    def begin(self) -> None:
        """A new question begins: its first message has none before it."""
        self._last_seen = None

    def note_answer(self) -> None:
        """The other side has answered or refused, or a call was given up: the next message is counted from now."""
        self._last_seen = self._clock()

    def next_time(self, every_seconds: float) -> float:
        """The next multiple of `every_seconds` after what was seen last, on the clock; now, when nothing was seen."""
        now = self._clock()
        if self._last_seen is None:
            return now
        return self._last_seen + every_seconds * max(1, ceil((now - self._last_seen) / every_seconds))

    async def turn(self, every_seconds: float = 0.0) -> None:
        """Wait until a message may leave: the next multiple of `every_seconds`, by default of the grid."""
        at = self.next_time(every_seconds or grid_seconds())
        await self._sleep(max(0.0, at - self._clock()))
