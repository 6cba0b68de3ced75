"""Cells in a fork server under a node profile: what agents and executors have in common."""

from __future__ import annotations

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_protocol.node_profile import NodeProfile
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.agent.child_processes import Child, ChildDied

START_SECONDS = 75.0
"""What a cell may take beyond its own limit: the start of the fork server, and the dry run of a cell."""


def fork_server(profile: NodeProfile) -> Child:
    """The fork server, not yet started. It limits the memory of its cells, not its own."""
    module, limit = "pharoah_benchmarks.campaign.fork_server", str(profile.memory_limit_bytes)
    return Child(module, profile, limit, limit_memory=False)


async def cell_result(server: Child, cell: Cell) -> str:
    """The result of a cell as JSON, as the fork server wrote it. One that ended the fork server has crashed."""
    try:
        return (await server.ask(cell.to_json(), cell.limit_seconds + START_SECONDS)).strip()
    except (ChildDied, TimeoutError) as error:
        detail = f"the campaign process ended: {error}"
        return CellResult(cell=cell.id, outcome=Outcome.CRASH, detail=detail).to_json()
