"""What goes on now: at most one validation, or measurement of a level, for each node."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from pharoah_provider.domain import Run
from pharoah_provider.owned_tasks import OwnedTasks


@dataclass(frozen=True)
class Probing:
    """The validation, or measurement of a level, that goes on for a node."""

    task: asyncio.Task[None]
    run: Run | None
    """The run beside which it goes on; None on an idle node."""


class Probings:
    """Starts and stops what goes on; the tasks belong to their scope."""

    def __init__(self, scope: OwnedTasks) -> None:
        self._scope = scope
        self._by_node: dict[str, Probing] = {}

    def __contains__(self, node: str) -> bool:
        return node in self._by_node

    def tasks(self) -> list[asyncio.Task[None]]:
        """All that goes on."""
        return [probing.task for probing in self._by_node.values()]

    def start(self, node: str, run: Run | None, work: Coroutine[Any, Any, None]) -> None:
        """Measure a node beside a run, or as an idle one."""
        probing = self._by_node[node] = Probing(self._scope.start(work), run)

        def over(_: asyncio.Task[None]) -> None:
            if self._by_node.get(node) is probing:
                del self._by_node[node]

        probing.task.add_done_callback(over)

    def stop_all(self, node: str) -> None:
        """Stop what goes on for a node."""
        if probing := self._by_node.pop(node, None):
            probing.task.cancel()

    def stop(self, node: str, run: Run | None) -> None:
        """Stop what goes on beside this run, or on the node as an idle one."""
        probing = self._by_node.get(node)
        if probing is not None and (probing.run and probing.run.run_id) == (run and run.run_id):
            self.stop_all(node)
