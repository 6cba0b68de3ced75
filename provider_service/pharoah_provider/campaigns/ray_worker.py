"""One worker of a Ray cluster: an actor with fork servers under a node profile, which runs one cell at a time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_protocol.node_profile import check_profile
from pharoah_provider.agent.fork_servers import cell_answer, fork_servers
from pharoah_system.bounded_reading import MESSAGE_LIMITS, parse_json


class CellWorker:
    """Becomes an actor by `ray.remote`. Its fork servers end with the actor's process, however that ends."""

    def __init__(self, profile: str) -> None:
        """`profile`: the node profile as JSON. Raises ProfileError for one that this machine cannot have."""
        self._servers = fork_servers(check_profile(parse_json(profile, "profile", MESSAGE_LIMITS)))
        self._scope = AsyncExitStack()

    async def start(self) -> str:
        """Start the scope of the fork servers; the id of the Ray node that this worker stands on."""
        import ray

        await self._scope.enter_async_context(self._servers)
        node_id: str = ray.get_runtime_context().get_node_id()
        return node_id

    async def run(self, cell: str) -> str:
        """The result of a cell; both are JSON."""
        return await cell_answer(self._servers, Cell.from_json(cell))

    async def stay(self) -> None:
        """Never returns: whoever waits for it learns at once that the actor is gone."""
        await asyncio.Event().wait()
