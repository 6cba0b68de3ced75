"""Who uses this node: a short look at its cores and GPUs, when the provider asks and at no other time.

The provider may take a node for idle on which somebody trains without Pharoah. So no micro-benchmark of an idle node
runs before its agent has looked. The answer is one bit, and answers are rare: a node that is asked too often is not
looked at and counts as in use, so that questions cannot follow what somebody does there.

Beside a job that has agreed, somebody else may train on the same cores. So before a micro-benchmark beside a job, the
agent compares what the cores have worked with what the processes of known jobs have.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from pharoah_provider.agent.known_jobs import TICKS_PER_SECOND, KnownJobs, sum_computed_seconds, use_of
from pharoah_provider.agent.shared_question import SharedQuestion
from pharoah_provider.agent.signals._nvml import gpu_processes
from pharoah_serving.quotas import TokenBucket
from pharoah_system.process_family import descendants

log = logging.getLogger("pharoah.agent")

LOOK_SECONDS = 0.3
"""Thirty ticks of the kernel's counters (100 a second, proc(5)), so that they are exact to 3 % of a core."""
BUSY_CORES, BUSY_RATIO = 0.25, 0.005
"""What daemons and interrupts may use: a quarter of a core, and 0.5 % of every core. One process that computes uses a
whole core, which is more up to 150 cores."""
LOOKS_AT_ONCE, LOOKS_PER_SECOND = 6.0, 1 / 60
"""Answers that may say that the node is idle: a few at once, as validations between two runs need them, then one a
minute."""
LOOK_HOLDS_SECONDS = 10.0
"""An order that comes so soon after an answer does not count as another question."""
STRANGER_LOOKS, STRANGER_PAUSE_SECONDS = 3, 0.5
"""Somebody else computes beside the known jobs when each of so many looks shows it, with pauses between them: a daemon
works for a moment."""
HANG_SECONDS = 5.0
"""A driver hangs that has not answered for so long: it needs milliseconds, and the provider waits no longer for a look
(`fleet.LOOK_SECONDS`)."""
_BUSY_COLUMNS = (1, 2, 3, 6, 7)
"""Columns of a core in /proc/stat: user, nice, system, irq, softirq (proc(5)). Waiting and stolen time is no use."""


def busy_seconds(stat: str, cpus: Iterable[int]) -> float:
    """Seconds since the boot in which these cores have worked. Raises ValueError for a core that is not in `stat`."""
    rows = {row[0]: row for line in stat.splitlines() if (row := line.split())}
    try:
        return sum(int(rows[f"cpu{cpu}"][column]) for cpu in cpus for column in _BUSY_COLUMNS) / TICKS_PER_SECOND
    except (KeyError, IndexError) as missing:
        raise ValueError(f"/proc/stat: no {missing}") from None


def own_processes() -> Iterator[int]:
    """This process, its children and theirs."""
    yield os.getpid()
    yield from descendants(os.getpid())


@dataclass
class Look:
    """Looks at one node."""

    cpus: tuple[int, ...]
    jobs: KnownJobs = field(default_factory=KnownJobs)
    stat: Callable[[], str] = Path("/proc/stat").read_text
    gpu_users: Callable[[], Collection[int]] = gpu_processes
    """Processes that compute on a GPU of the node."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that never jump."""
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    _answers: TokenBucket = field(init=False)
    _seen_idle_at: float = field(default=-inf, init=False)
    _driver: SharedQuestion[Collection[int]] = field(init=False)

    def __post_init__(self) -> None:
        self._driver = SharedQuestion(self.gpu_users, clock=self.clock)
        self._answers = TokenBucket.full(LOOKS_AT_ONCE, LOOKS_PER_SECOND, self.clock())

    async def idle(self) -> bool:
        """Whether nothing but this agent uses the node now, as far as it can be seen; False when asked too often."""
        now = self.clock()
        if now - self._seen_idle_at >= LOOK_HOLDS_SECONDS and not self._answers.take(1.0, now):
            return False
        idle = await self._is_used_only_by(set)
        log.info("the provider asked for an idle node; this one %s", "is idle" if idle else "is not idle")
        self._seen_idle_at = self.clock() if idle else -inf
        return idle

    async def only_known_jobs(self) -> bool:
        """Whether nobody but known jobs and this agent uses the node now, as far as it can be seen."""
        for number in range(STRANGER_LOOKS):
            if number:
                await self.pause(STRANGER_PAUSE_SECONDS)
            if await self._is_used_only_by(lambda: {*own_processes(), *self.jobs.processes()}):
                return True
        log.info("the provider asked for a micro-benchmark beside a job; somebody else uses the node")
        return False

    async def _is_used_only_by(self, known: Callable[[], set[int]]) -> bool:
        try:
            if self._driver.waiting_seconds > HANG_SECONDS:
                raise TimeoutError("the driver has not answered the last question")
            if set(await self._driver.answer()) - {*own_processes(), *known()}:
                return False
            used_before, busy_before, began = use_of(known(), self.cpus), self._busy_seconds(), self.clock()
            await self.pause(LOOK_SECONDS)
            busy, took = self._busy_seconds() - busy_before, self.clock() - began
            busy -= sum_computed_seconds(used_before, use_of(known(), self.cpus))
        except Exception as error:  # noqa: BLE001 - files of the kernel, or a driver: what is not seen is not seen idle
            log.warning("this node cannot be looked at: %s: %s", type(error).__name__, error)
            return False
        return busy <= (BUSY_CORES + BUSY_RATIO * len(self.cpus)) * took

    def _busy_seconds(self) -> float:
        return busy_seconds(self.stat(), self.cpus)
