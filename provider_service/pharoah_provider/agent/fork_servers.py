"""Cells in fork servers under a node profile, one for each environment: what agents and executors have in common."""

from __future__ import annotations

from pharoah_benchmarks.campaign.cell import Cell, CellResult, NotBuilt
from pharoah_benchmarks.environments import BuildError
from pharoah_protocol.node_profile import NodeProfile
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.agent.child_processes import START_SECONDS, ChildDied
from pharoah_provider.agent.environment_children import EnvironmentChildren

BESIDE_SECONDS = 100.0
"""What a cell may take beyond its own limit: its dry run, which may take 60 s, and the end of all that either of them
has started, for 20 s each."""
BEYOND_SECONDS = START_SECONDS + BESIDE_SECONDS
"""The same with the start of the fork server."""


def fork_servers(profile: NodeProfile) -> EnvironmentChildren:
    """The fork servers, none of which is started yet. They limit the memory of their cells, not their own."""
    module, limit = "pharoah_benchmarks.campaign.fork_server", str(profile.memory_limit_bytes)
    return EnvironmentChildren(module, profile, limit, limit_memory=False, warms=True)


async def cell_answer(servers: EnvironmentChildren, cell: Cell) -> str:
    """The answer to a cell as JSON: its result as the fork server wrote it, or why it did not run.

    A cell that ended its fork server has crashed. The fork server itself ends one that takes too long, unless a process
    hangs in the kernel.
    """
    try:
        limit_seconds = cell.limit_seconds + BESIDE_SECONDS
        return (await servers.ask(cell.environment, cell.to_json(), limit_seconds, cell.lock)).strip()
    except BuildError as error:
        again = error.may_be_tried_again
        return NotBuilt(cell=cell.id, not_built=str(error), may_be_tried_again=again).to_json()
    except TimeoutError:
        return _describe_unfinished(cell, Outcome.TIMEOUT, "the campaign process did not answer, and was ended")
    except ChildDied as error:
        return _describe_unfinished(cell, Outcome.CRASH, f"the campaign process ended: {error}")
    except OSError as error:  # of this machine, such as a full disk: it says nothing about the cell
        reason = f"no process could be started: {error}"
        return NotBuilt(cell=cell.id, not_built=reason, may_be_tried_again=True).to_json()


def _describe_unfinished(cell: Cell, outcome: Outcome, detail: str) -> str:
    return CellResult(cell=cell.id, outcome=outcome, detail=detail, device=cell.ordered_device).to_json()
