"""What a listing is.

The command of a listing needs its columns alone. So its module imports inside its functions what makes its rows.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pharoah_provider.storage.base import Storage

MAX_ROWS = 100_000
"""Rows of a listing of a table that grows with time: 40 MB where a row has 400 bytes as JSON. One answer holds 64 MiB
(`channel.MAX_LISTING_BYTES`)."""
MAX_LONG_ROWS = 20_000
"""The same where rows hold long texts: 60 MB where a row has 3,000 bytes, such as a fingerprint."""

_NAME = re.compile(r"[a-z][a-z0-9-]*")

Row = dict[str, Any]
"""Column to value; values are what JSON can hold."""


@dataclass(frozen=True)
class ListingSources:
    """What a listing is made from."""

    storage: Storage
    connected: Mapping[str, float]
    """Node to when its agent was last heard, unix seconds; connected agents only."""
    now: float
    """Unix seconds."""
    held: frozenset[str] = frozenset()
    """Connected nodes that have changed their facts too often for one day."""


@dataclass(frozen=True)
class Listing:
    """One listing. Raises ValueError for a name that cannot be a command, and without help or columns."""

    name: str
    """The command, and the name in `Operator.List`: lower case, words joined by `-`."""
    help: str
    """What it lists, for `--help` and the documentation; plain text that ends without a full stop."""
    columns: tuple[str, ...]
    """The columns that a terminal of 80 characters shows. Every row has at least these; `-o json` prints all."""
    rows: Callable[[ListingSources], Awaitable[list[Row]]]
    wide_columns: tuple[str, ...] = ()
    """Further columns for a wide terminal."""
    most_rows: int = 0
    """The newest so many rows are listed, and older ones are left out; 0 where all are."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"listing {self.name!r}: expected a name of lower-case letters, digits and -")
        if not self.help or not self.columns:
            raise ValueError(f"listing {self.name!r}: help and columns must not be empty")

    @property
    def whole_help(self) -> str:
        """What it lists, and how much of it."""
        return f"{self.help} (the newest {self.most_rows:,})" if self.most_rows else self.help


def select(query: str) -> Callable[[ListingSources], Awaitable[list[Row]]]:
    """The rows of one query, in the SQL of the storage."""

    async def rows(sources: ListingSources) -> list[Row]:
        return await sources.storage.select(query)

    return rows


def newest(query: str, order: tuple[str, ...], most_rows: int = MAX_ROWS) -> str:
    """The query of the newest rows of another one, oldest first; `order` names columns of it that grow with time.

    A table that grows with time would fill the memory of the provider, and the answer would become too long to arrive.
    """
    descending = ", ".join(f"{column} DESC" for column in order)
    return (
        f"SELECT * FROM (SELECT * FROM ({query}) ORDER BY {descending} LIMIT {most_rows}) ORDER BY {', '.join(order)}"
    )
