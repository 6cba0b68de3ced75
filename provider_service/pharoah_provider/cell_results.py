"""Results of cells as executors send them: read, bounded, and held against the cell that was ordered."""

from __future__ import annotations

from pharoah_benchmarks.campaign.cell import Cell, CellResult, NotBuilt, read_answer

LONGEST_RESULT_BYTES = 1 << 22
"""The result of a cell as JSON: the most durations and windows that are accepted, with a fingerprint, are 3 MB."""
LONGEST_MESSAGE_BYTES = LONGEST_RESULT_BYTES + (1 << 16)
"""A message of an agent with such a result: the id of the order and the lengths of fields are far below 64 KiB."""


def read_result(text: str) -> CellResult | NotBuilt:
    """The answer to a cell. Raises ValueError for a text that is cut off, too long, or that no cell can have given."""
    if len(text) > LONGEST_RESULT_BYTES:
        raise ValueError(f"{len(text)} bytes, at most {LONGEST_RESULT_BYTES}")
    try:
        return read_answer(text)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError(f"{error!a}"[:200]) from None


def is_of(result: CellResult, cell: Cell) -> bool:
    """Whether a result can be that of a cell: of its id, with windows only where it was to be degraded, and with no
    more seconds of steps than the cell may take."""
    windows_ordered = not result.windows or cell.degradation is not None
    return result.cell == cell.id and windows_ordered and sum(result.step_seconds) <= cell.limit_seconds
