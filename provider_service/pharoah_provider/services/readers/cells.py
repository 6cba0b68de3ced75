"""Answers of agents to cells. The functions raise ValueError that says what is wrong."""

from __future__ import annotations

import json

from google.protobuf.message import DecodeError

from pharoah_benchmarks.campaign.cell import Cell, NotBuilt
from pharoah_protocol.v1 import AgentMessage
from pharoah_provider.cell_results import AnswerBounds, parts_of, read_result


def read_cell(cell: bytes, outcome: bytes) -> list[bytes]:
    """The outcome as `cell_results.from_parts` takes it, once it is within what the ordered cell can have given."""
    bounds = AnswerBounds.from_cell(Cell.from_json(cell.decode()))
    if len(outcome) > bounds.result_bytes:
        raise ValueError(f"{len(outcome)} bytes, at most {bounds.result_bytes} for the cell that was ordered")
    answer = read_result(outcome.decode())
    if not isinstance(answer, NotBuilt):
        bounds.check(answer)
    return parts_of(answer)


def read_long_answer(cells: bytes, message: bytes) -> list[bytes]:
    """The id of the order that a message answers, and the outcome as above. `cells`: the open orders of cells, from id
    to cell, as JSON. The id alone when no such order is open: then the outcome is not looked at."""
    try:
        content = AgentMessage.FromString(message)
    except DecodeError:
        raise ValueError("not a message of this kind") from None
    if content.WhichOneof("content") != "cell":
        raise ValueError(f"{len(message)} bytes: only the result of a cell may be so long")
    order_id, ordered = content.cell.order_id, json.loads(cells)
    if order_id not in ordered:
        return [b""]
    return [order_id.encode(), *read_cell(ordered[order_id].encode(), content.cell.outcome.encode())]
