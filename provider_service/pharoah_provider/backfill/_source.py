"""What a source of past runs is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pharoah_learning.effects import Names

_NAME = re.compile(r"[a-z][a-z0-9-]*")


class BackfillError(ValueError):
    """A file or a column map that cannot be used; the message names the file, and the row and column where known."""


@dataclass(frozen=True)
class Table:
    """The columns of a file as text, one entry for each run; empty where the file has nothing."""

    path: Path
    columns: Mapping[str, Names]
    first_row: int = 2
    """The row of the file that holds the first run, counted from 1: a header comes before it."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def column(self, name: str) -> Names:
        """Raises BackfillError that lists the columns there are."""
        if name not in self.columns:
            raise BackfillError(f"{self.path}: there is no column {name!r}; it has {', '.join(self.columns)}")
        return self.columns[name]

    def error(self, run: int, column: str, what: str) -> BackfillError:
        """The error about one value."""
        return BackfillError(f"{self.path}: row {run + self.first_row}, column {column}: {what}")

    def chosen(self, runs: np.ndarray) -> Table:
        """The table with these runs only."""
        return Table(self.path, {name: values[runs] for name, values in self.columns.items()}, self.first_row)


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
