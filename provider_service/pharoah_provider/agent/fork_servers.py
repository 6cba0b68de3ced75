"""Cells in fork servers under a node profile, one for each environment: what agents and executors have in common."""

from __future__ import annotations

from pharoah_benchmarks.campaign.cell import Cell, CellResult, NotBuilt
from pharoah_benchmarks.environments import BuildError
from pharoah_protocol.node_profile import NodeProfile
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.agent.child_processes import ChildDied
from pharoah_provider.agent.environment_children import EnvironmentChildren

START_SECONDS = 75.0
"""What a cell may take beyond its own limit: the start of the fork server, and the dry run of a cell."""


def fork_servers(profile: NodeProfile) -> EnvironmentChildren:
    """The fork servers, none of which is started yet. They limit the memory of their cells, not their own."""
    module, limit = "pharoah_benchmarks.campaign.fork_server", str(profile.memory_limit_bytes)
    return EnvironmentChildren(module, profile, limit, limit_memory=False)


async def cell_answer(servers: EnvironmentChildren, cell: Cell) -> str:
    """The answer to a cell as JSON: its result as the fork server wrote it, or why its environment was not built. A
    cell that ended its fork server has crashed."""
    try:
        return (await servers.ask(cell.environment, cell.to_json(), cell.limit_seconds + START_SECONDS)).strip()
    except BuildError as error:
        return NotBuilt(cell=cell.id, not_built=str(error)).to_json()
    except (ChildDied, TimeoutError) as error:
        detail = f"the campaign process ended: {error}"
        return CellResult(cell=cell.id, outcome=Outcome.CRASH, detail=detail, device=cell.ordered_device).to_json()
    except OSError as error:  # of this machine, such as a full disk: it says nothing about the cell
        reason = f"no process could be started: {error}"
        return NotBuilt(cell=cell.id, not_built=reason, may_be_tried_again=True).to_json()
