"""What a storage keeps of nodes: the part of `storage.base` that agents write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pharoah_provider.domain import Node
from pharoah_provider.storage.records import DeviceSignal


class NodeStore(Protocol):
    """Nodes as their agents describe them, and what the agents measure."""

    async def put_node(self, node: Node, now: float | None = None) -> None:
        """Keep what a node is at a unix time, or now. Where its facts differ from those that were known, what was
        measured before is no reference for it any more."""
        ...

    async def node(self, name: str) -> Node | None: ...
    async def nodes(self) -> list[Node]: ...
    async def facts_since(self) -> dict[str, float]:
        """Node to when it came with its present facts, in unix seconds; 0 when it never had others."""
        ...

    async def append_telemetry(
        self, node: str, at: Sequence[float], metric: Sequence[str], device: Sequence[str], value: Sequence[float]
    ) -> None:
        """Samples as columns of equal length; `at` in unix seconds."""

    async def device_signals(self, node: str) -> list[DeviceSignal]:
        """What a node has sent samples of, as far as they are kept."""
        ...

    async def put_context_change(self, node: str, at: float) -> None:
        """A node came with facts that make another context or device model, at a unix time."""

    async def context_changes(self, node: str, since: float) -> int:
        """How often it did since then (unix seconds)."""
        ...

    async def forget_context_changes(self, node: str) -> None:
        """An operator has admitted the changes up to now."""
