"""Looks after the facts of a node while its agent runs, and sends them anew when they have changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from pharoah_benchmarks.facts import GPU_COUNT_FACT, GPU_FACT, device_facts, server_facts
from pharoah_provider.agent.child_processes import ChildDied
from pharoah_provider.agent.node_facts import PERIOD_SECONDS, NodeFacts
from pharoah_provider.domain import Node

log = logging.getLogger("pharoah.agent")

SEEN_SECONDS = 120.0
"""How long a process may take to see what it sees: it reads torch from a slow disk in several seconds."""


@dataclass
class FactWatch:
    """The facts of one node. What a process sees is read once, and again when GPUs have appeared or vanished: their
    driver may be loaded minutes after the agent has started."""

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
    _had_gpus: bool = field(init=False)

    def __post_init__(self) -> None:
        self._had_gpus = GPU_FACT in self.facts.fixed

    async def run(self) -> None:
        """Look once in a period, until it is cancelled."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Read the facts, and send the node if they have changed."""
        now = await asyncio.to_thread(self.facts.read)
        if (GPU_COUNT_FACT in now) is not self._had_gpus:
            now = await self._with_what_a_process_sees(now)
        found = replace(self.node, server_facts=tuple(server_facts(now)), device_facts=tuple(device_facts(now)))
        if found != self.node:
            changed = {*found.server_facts, *found.device_facts} ^ {*self.node.server_facts, *self.node.device_facts}
            log.info("facts have changed: %s", ", ".join(sorted(changed)))
            self.node = found
            self.restate(found)

    async def _with_what_a_process_sees(self, now: dict[str, object]) -> dict[str, object]:
        self._had_gpus = not self._had_gpus  # also if it fails: a process each minute would disturb jobs
        try:
            async with asyncio.timeout(SEEN_SECONDS):
                seen = await self.seen_by_process()
        except (ChildDied, OSError, ValueError, TimeoutError) as error:
            what = "what a process sees of the GPUs cannot be read, start the agent again"
            log.warning("%s: %s: %s", what, type(error).__name__, error)
            return now
        self.facts = replace(self.facts, fixed={**self.given, **seen})
        return await asyncio.to_thread(self.facts.read)
