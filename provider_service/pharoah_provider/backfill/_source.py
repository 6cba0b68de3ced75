"""What a source of past runs is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.effects import Names

_NAME = re.compile(r"[a-z][a-z0-9-]*")


class BackfillError(ValueError):
    """A file or a column map that cannot be used; the message names the file, and the row and column where known."""


class LazyColumns(Mapping[str, Names]):
    """Columns that are made when they are asked for: a map uses few of the columns that a table has."""

    def __init__(self, names: Iterable[str], make: Callable[[str], Names]) -> None:
        self._names = dict.fromkeys(names)
        self._make = make
        self._made: dict[str, Names] = {}

    def __getitem__(self, name: str) -> Names:
        """Raises KeyError for a column that is not there, and what `make` raises."""
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class Table:
    """The columns of a file as text, one entry for each run; empty where the file has nothing.

    Columns of objects (`dtype=object`) take the memory of their different values; those of numpy's own texts give every
    run the memory of the longest one.
    """

    path: Path
    columns: Mapping[str, Names]
    first_row: int = 2
    """The row of the file that holds the first run, counted from 1: a header comes before it."""
    rows: NDArray[np.int64] | None = None
    """The row of the file of each run, counted from 1; None where they follow each other from `first_row` on."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()) if self.rows is None else self.rows)

    def column(self, name: str) -> Names:
        """Raises BackfillError that lists the columns there are."""
        if name not in self.columns:
            raise BackfillError(f"{self.path}: there is no column {name!r}; it has {', '.join(self.columns)}")
        return self.columns[name]

    def error(self, run: int, column: str, what: str) -> BackfillError:
        """The error about one value."""
        row = run + self.first_row if self.rows is None else self.rows[run]
        return BackfillError(f"{self.path}: row {row}, column {column}: {what}")

    def choose(self, runs: np.ndarray) -> Table:
        """The table with these runs only."""
        rows = np.arange(self.first_row, self.first_row + len(self)) if self.rows is None else self.rows
        return Table(self.path, LazyColumns(self.columns, lambda name: self.columns[name][runs]), rows=rows[runs])


@dataclass(frozen=True)
class BackfillSource:
    """One kind of file. Raises ValueError for a name that cannot be an option, and without help."""

    name: str
    """The value of `--source`: lower case, words joined by `-`."""
    help: str
    """What it reads, for `--help`."""
    read: Callable[[Path], Table]
    """Raises BackfillError and OSError."""
    map: str = ""
    """The column map in TOML for files of this kind, whose columns are always the same; empty where each file has its
    own. What `--map` names replaces it."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"source {self.name!r}: expected a name of lower-case letters, digits and -")
        if not self.help:
            raise ValueError(f"source {self.name!r}: help must not be empty")
