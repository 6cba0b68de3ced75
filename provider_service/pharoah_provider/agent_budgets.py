"""What one agent may bring in a day and in a second: changes of its facts, and telemetry.

A change of a fact that counts makes another context or device model, and a class that is not in the current epoch makes
a new epoch, which every tenant downloads. So one agent may bring few of them without an operator's word. A change of
facts that the rule of contexts ignores makes neither.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from math import isfinite, isnan
from typing import NamedTuple

from pharoah_protocol.bounds import check_time
from pharoah_provider.contexts import Contexts
from pharoah_provider.domain import Node
from pharoah_provider.storage.node_store import NodeStore
from pharoah_provider.storage.records import DeviceSignal
from pharoah_serving.clock import Clock
from pharoah_serving.errors import Invalid
from pharoah_serving.quotas import TokenBucket

log = logging.getLogger("pharoah.provider.agents")

CHANGES_A_DAY = 3
"""A driver that is updated and rolled back, or a profile that somebody tries out, takes two or three in a day."""
DAY_SECONDS = 86_400.0
ROWS_PER_SECOND = 96.0
"""Telemetry of one node: a machine with 16 GPUs, 24 ports of networks and 8 memory controllers sends 145 rows every two
seconds (`pharoah_provider.agent.signals`): seven for each GPU, one for each port and controller, and one of its own."""
ROWS_AT_ONCE = 80_000.0
"""What an agent keeps while the provider is away: 500 batches (`agent.stream.KEPT_BATCHES`) of 160 rows."""
MAX_SIGNALS = 2048
"""Signals of devices of one node that are stored: fourteen times those of such a machine, so that devices can be
replaced and renamed. Every commit looks at the newest reading of each, and a malicious agent could invent any number.
"""
MAX_BATCH = 10_000
MAX_NAME_LENGTH = 256
"""Characters of the name of a metric or a device."""


class Admitted(NamedTuple):
    """A node as the provider takes it."""

    node: Node
    """With the facts that hold: those it sent, or those that were admitted last."""
    held: bool
    """Whether it sent other facts than those."""


@dataclass
class AgentBudgets:
    """The budgets of all agents. Single-threaded: belongs to the event loop."""

    nodes: NodeStore
    clock: Clock
    contexts: Contexts = field(default_factory=Contexts)
    _telemetry: dict[str, TokenBucket] = field(default_factory=dict)
    _signals: dict[str, set[DeviceSignal]] = field(default_factory=dict)
    """By node: what it has sent samples of."""
    _quiet_until: dict[str, float] = field(default_factory=dict)
    """Node to when the next signal of it that is dropped is logged, seconds of the steady clock."""

    async def admit(self, node: Node) -> Admitted:
        """The node, with its facts if it may change them now."""
        self._signals[node.node] = set(await self.nodes.device_signals(node.node))
        known = await self.nodes.node(node.node)
        if known is None or self._class(known) == self._class(node):
            return Admitted(node=node, held=False)
        now = self.clock.wall()
        if await self.nodes.context_changes(node.node, now - DAY_SECONDS) < CHANGES_A_DAY:
            await self.nodes.put_context_change(node.node, now)
            return Admitted(node=node, held=False)
        log.warning("node %s has changed its facts too often today: `pharoah-provider admit %s`", node.node, node.node)
        held = replace(node, server_facts=known.server_facts, device_facts=known.device_facts)
        return Admitted(node=held, held=True)

    def _class(self, node: Node) -> tuple[str, str]:
        """What a table is sealed for: another fact that is ignored makes no other class, and costs nobody anything."""
        return self.contexts.find_name(node), node.device_id

    def refuse_signals(self, node: str, metric: Sequence[str], device: Sequence[str]) -> Set[DeviceSignal]:
        """The signals of a batch that are too many for this node; other new ones are counted."""
        known = self._signals.setdefault(node, set())
        fresh = {DeviceSignal(*names) for names in set(zip(metric, device, strict=True)) - known}
        known.update(sorted(fresh)[: max(0, MAX_SIGNALS - len(known))])
        refused = fresh - known
        if refused and self.clock.steady() >= self._quiet_until.get(node, 0.0):
            self._quiet_until[node] = self.clock.steady() + DAY_SECONDS
            log.warning(
                "node %s sends more than %d signals of devices: %s and others are dropped",
                node,
                MAX_SIGNALS,
                min(refused),
            )
        return refused

    def takes_rows(self, node: str, rows: int) -> bool:
        """Whether so many rows of telemetry are within what a node may send; then they are counted."""
        now = self.clock.steady()
        bucket = self._telemetry.setdefault(node, TokenBucket.full(ROWS_AT_ONCE, ROWS_PER_SECOND, now))
        return bucket.take(rows, now)


def check_telemetry(at: Sequence[float], metric: Sequence[str], device: Sequence[str], value: Sequence[float]) -> None:
    """Raise Invalid that names the field of telemetry that no agent can have measured, whatever its clock says."""
    size = len(at)
    for name, column in (("metric", metric), ("device", device), ("value", value)):
        if len(column) != size:
            raise Invalid(f"telemetry.{name}: {len(column)} values, sampled_at has {size}")
    if size > MAX_BATCH:
        raise Invalid(f"telemetry.sampled_at: {size} rows, at most {MAX_BATCH} in one batch")
    for name, texts in (("metric", metric), ("device", device)):
        if any(len(text) > MAX_NAME_LENGTH or not text.isprintable() for text in texts):
            raise Invalid(f"telemetry.{name}: expected printable names of at most {MAX_NAME_LENGTH} characters")
    if not all(map(isfinite, at)):
        raise Invalid("telemetry.sampled_at: expected finite numbers")
    if not all(isfinite(number) or isnan(number) for number in value):
        raise Invalid("telemetry.value: expected finite numbers, or NaN where a reading is missing")


def is_of_today(at: Sequence[float], now: float) -> bool:
    """Whether telemetry was sampled within a day of `now`; both in unix seconds.

    Older telemetry is no fault of what the agent does now: the provider was away for longer, or the clock of the node
    was wrong before. An agent sends what is not acknowledged again, so it may not be refused for it.
    """
    try:
        for moment in at:
            check_time("telemetry.sampled_at", moment, now)
    except ValueError:
        return False
    return True
