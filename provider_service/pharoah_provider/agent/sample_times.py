"""When samples of a node are taken and leave: at times that do not depend on what else the node does.

How long a sample takes, and how late the next one is, depends on how busy the node is, and so on the job that runs
there (`python -m evaluation privacy --part telemetry`). So samples are taken at multiples of a period from the first
one on, they are said to be of these times, and each leaves half a second later, after a random delay.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pharoah_protocol.random_delay import random_delay

SHORTEST_PERIOD_SECONDS, MAX_PERIOD_SECONDS = 1.0, 3600.0
"""What a provider may ask for: samples that come faster would follow what a job does."""
LEAVES_AFTER_SECONDS, MAX_DELAY_SECONDS = 0.5, 0.4
"""From the time of a sample until it may leave, and the random delay after that. Taking a sample needs some
milliseconds; both together are less than the shortest period."""
TIME_STEP_DIGITS = 1
"""Times of samples are multiples of 0.1 s."""
CLOCK_STEP_SECONDS = 0.5
"""From this difference on, between the wall clock and the periods that were counted, the clock was set."""


@dataclass
class SampleTimes:
    """The times of the samples of one connection."""

    period_seconds: float
    """As the provider has asked for it; a period that cannot be is the nearest one that can."""
    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _due: float = field(init=False)
    """Steady seconds of the newest sample."""
    _unix: float = field(init=False)
    """Its unix seconds."""

    def __post_init__(self) -> None:
        asked = self.period_seconds if math.isfinite(self.period_seconds) else MAX_PERIOD_SECONDS
        self.period_seconds = min(max(asked, SHORTEST_PERIOD_SECONDS), MAX_PERIOD_SECONDS)
        self._due, self._unix = self.steady(), round(self.wall(), TIME_STEP_DIGITS)

    async def next(self) -> float:
        """Wait for the next sample; gives its unix seconds. Periods that have passed meanwhile are left out."""
        periods = max(1, math.ceil((self.steady() - self._due) / self.period_seconds))
        self._due += periods * self.period_seconds
        self._unix += periods * self.period_seconds
        await self._until(self._due)
        if abs(self.wall() - self._unix) > CLOCK_STEP_SECONDS:
            self._unix = round(self.wall(), TIME_STEP_DIGITS)
        return round(self._unix, TIME_STEP_DIGITS)

    async def leave(self) -> None:
        """Wait until the newest sample may leave, and for a random delay."""
        await self._until(self._due + LEAVES_AFTER_SECONDS + random_delay(MAX_DELAY_SECONDS))

    async def _until(self, at: float) -> None:
        await self.sleep(max(0.0, at - self.steady()))
