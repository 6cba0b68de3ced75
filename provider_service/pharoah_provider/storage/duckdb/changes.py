"""What the writer thread commits: single changes, and rows of many callers that one statement can hold together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from pharoah_serving.costs import Cost

Change = Callable[[duckdb.DuckDBPyConnection], object]
"""A change of its own."""
WriteRows = Callable[[duckdb.DuckDBPyConnection, Sequence[Any]], object]
"""Writes the contents of several callers at once."""


@dataclass(frozen=True)
class Rows:
    """Rows of one caller that are written together with those of others.

    A statement costs DuckDB about a millisecond, whatever it holds. Ten thousand runs that report once a second would
    need ten thousand statements; the rows of all callers that wait for the same commit need one.
    """

    write: WriteRows
    """Rows with the same function are written together."""
    content: Any
    size: int
    """How many rows these are: the callers share what the statement has cost by it."""
    cost: Cost | None = None
    """To whom the CPU seconds are charged."""


def make_all(connection: duckdb.DuckDBPyConnection, changes: Iterable[Change | Rows]) -> None:
    """Make changes within the transaction that is open. Rows of different callers may change places, because no caller
    has two changes under way; nothing changes places with a change of its own."""
    waiting: dict[Any, list[Rows]] = {}
    for change in changes:
        if isinstance(change, Rows):
            waiting.setdefault(change.write, []).append(change)
            continue
        _write(connection, waiting)
        change(connection)
    _write(connection, waiting)


def _write(connection: duckdb.DuckDBPyConnection, waiting: dict[Any, list[Rows]]) -> None:
    """Write what waits, and charge each caller its share."""
    for write, parts in waiting.items():
        began = time.thread_time()
        write(connection, [part.content for part in parts])
        seconds, rows = time.thread_time() - began, sum(part.size for part in parts)
        for part in parts:
            if part.cost is not None and rows:
                part.cost.add(seconds * part.size / rows)
    waiting.clear()
