"""Looks after the facts of a node while its agent runs, and sends them anew when they have changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from pharoah_benchmarks.facts import GPU_COUNT_FACT, GPU_FACT, device_facts, server_facts
from pharoah_provider.agent.child_processes import ChildDied
from pharoah_provider.agent.node_facts import PERIOD_SECONDS, NodeFacts
from pharoah_provider.agent.own_thread import in_own_thread
from pharoah_provider.agent.signals._nvml import driver_hangs
from pharoah_provider.domain import Node

log = logging.getLogger("pharoah.agent")

SEEN_SECONDS = 120.0
"""How long a process may take to see what it sees: it reads torch from a slow disk in several seconds."""
MAX_PAUSE_SECONDS = 3600.0
"""The pause until a process is asked again grows up to this: a process each minute would disturb jobs, and CUDA may
be ready minutes after the driver, as on servers whose links are set up by a service of their own."""


@dataclass
class FactWatch:
    """The facts of one node. What a process sees is read once, and again while it sees no GPUs and the driver has some,
    or the other way round: the driver may be loaded minutes after the agent has started, and CUDA may follow later."""

    node: Node
    """As the provider knows it."""
    given: Mapping[str, str]
    """Facts that the operator gives."""
    facts: NodeFacts
    """The facts of now."""
    seen_by_process: Callable[[], Awaitable[Mapping[str, object]]]
    """Raises ChildDied, OSError, ValueError."""
    restate: Callable[[Node], None]
    """Sends the node anew."""
    clock: Callable[[], float] = time.monotonic
    _pause_seconds: float = field(default=0.0, init=False)
    """How long no process is asked after the last one, because it saw other GPUs than the driver."""
    _asked_at: float = field(default=-inf, init=False)

    async def run(self) -> None:
        """Look once in a period, until it is cancelled."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            try:
                await self.look()
            except Exception:  # the next look may succeed
                log.exception("the facts of this node were not read")

    async def look(self) -> None:
        """Read the facts, and send the node if they have changed. While the driver hangs, the facts stay."""
        now = await in_own_thread(self.facts.read)
        if driver_hangs():
            return
        if (GPU_COUNT_FACT in now) is not (GPU_FACT in self.facts.fixed) and self._may_ask():
            now = await self._with_what_a_process_sees(now)
        found = replace(self.node, server_facts=tuple(server_facts(now)), device_facts=tuple(device_facts(now)))
        if found != self.node:
            changed = {*found.server_facts, *found.device_facts} ^ {*self.node.server_facts, *self.node.device_facts}
            log.info("facts have changed: %s", ", ".join(sorted(changed)))
            self.node = found
            self.restate(found)

    def _may_ask(self) -> bool:
        return self.clock() - self._asked_at >= self._pause_seconds

    async def _with_what_a_process_sees(self, now: dict[str, object]) -> dict[str, object]:
        self._asked_at = self.clock()
        self._pause_seconds = min(max(2 * self._pause_seconds, PERIOD_SECONDS), MAX_PAUSE_SECONDS)
        again = f"a process is asked again in {self._pause_seconds / 60:.0f} min"
        try:
            async with asyncio.timeout(SEEN_SECONDS):
                seen = await self.seen_by_process()
        except (ChildDied, OSError, ValueError, TimeoutError) as error:
            log.warning(
                "what a process sees of the GPUs cannot be read, %s: %s: %s", again, type(error).__name__, error
            )
            return now
        if (GPU_COUNT_FACT in now) is (GPU_FACT in seen):
            self._pause_seconds = 0.0
        else:
            log.warning("the driver has %s GPUs, and torch sees %s: %s",
                        now.get(GPU_COUNT_FACT, "no"), seen.get(GPU_FACT, "none"), again)  # fmt: skip
        self.facts = replace(self.facts, fixed={**self.given, **seen})
        return await in_own_thread(self.facts.read)
