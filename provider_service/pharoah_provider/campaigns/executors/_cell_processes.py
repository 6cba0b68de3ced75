"""Cells in processes of the provider's own, on this machine or in a cluster: their nodes have no context."""

from __future__ import annotations

import asyncio

from pharoah_benchmarks.campaign.cell import Cell, CellResult, NotBuilt
from pharoah_provider.agent_connection import NoRoomThere, NotBuiltThere, WrongAnswer
from pharoah_provider.cell_results import is_of, read_result
from pharoah_provider.domain import Node


def node_without_context(name: str) -> Node:
    """A process of an executor, as a node without facts. What is in force in it stands in each of its results."""
    return Node(name, ticket_key=b"", boot_id=name, server_facts=(), device_facts=(), cpus=())


async def check_result(node: Node, cell: Cell, text: str) -> CellResult:
    """The result of a cell from a text, which a thread reads: it comes from processes of our own.

    Raises WrongAnswer for one that cannot be that of the cell, NotBuiltThere where its environment was not built, and
    NoRoomThere where there was no room for a process, or no processor time.
    """
    try:
        result = await asyncio.to_thread(read_result, text)
    except ValueError as error:
        raise WrongAnswer(f"{node.node}: the result of cell {cell.id} cannot be read: {error}") from None
    if isinstance(result, NotBuilt) and result.may_be_tried_again:
        raise NoRoomThere(f"{node.node}: {result.not_built}")
    if isinstance(result, NotBuilt):
        raise NotBuiltThere(f"{node.node}: {cell.environment}: {result.not_built}")
    if not is_of(result, cell):
        raise WrongAnswer(f"{node.node}: the result is not that of cell {cell.id}")
    return result
