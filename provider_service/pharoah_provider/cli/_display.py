"""Tables and progress on a terminal: the only place that hands text to rich.

rich reads markup (`[red]`, links, `:smile:`) in text, and passes on what a terminal obeys. Here every text is a `Text`
of printable characters, which is neither. rich is loaded when something is shown: most commands show no table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pharoah_system.text import sanitize_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

MAX_CELL_CHARACTERS = 300


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    heading: str
    right: bool = False
    """Whether its values are numbers, which end at the same place."""
    whole: bool = False
    """Whether its values are never broken."""


def line_columns(piped: int) -> int:
    """Characters of a line: those of the terminal, or `piped` where the output is none."""
    return _console(piped).width


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], piped: int) -> None:
    """Print a table. `piped`: characters of a line where the output is not a terminal."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    for column in columns:
        justify: Literal["right", "left"] = "right" if column.right else "left"
        table.add_column(_text(column.heading), overflow="fold", no_wrap=column.whole, justify=justify)
    for row in rows:
        table.add_row(*map(_text, row))
    _console(piped).print(table)


def show_note(text: str, piped: int, *, dim: bool = False) -> None:
    """Print one line about what was printed, in as many lines as it needs."""
    _console(piped).print(_text(text, longest=len(text)), style="dim" if dim else None)


class Progress:
    """How far a campaign is: a bar on a terminal, ten lines elsewhere."""

    def __init__(self, bar: Any) -> None:
        self._bar, self._task = bar, bar.add_task("", total=None)

    @property
    def is_drawn(self) -> bool:
        return not self._bar.disable

    def move(self, done: int, total: int, what: str) -> None:
        self._bar.update(self._task, completed=done, total=total, description=sanitize_text(what))

    def say(self, what: str) -> None:
        """One line above the bar."""
        self._bar.console.print(_text(what))


@contextmanager
def progress(name: str) -> Iterator[Progress]:
    """A bar while inside, where standard output is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(name, markup=False), BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn())
    what = TextColumn("{task.description}", markup=False)
    with Bar(*columns, what, console=_console(0), disable=not sys.stdout.isatty()) as bar:
        yield Progress(bar)


def _console(piped: int) -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() or not piped else piped, highlight=False)


def _text(text: str, longest: int = MAX_CELL_CHARACTERS) -> Text:
    from rich.text import Text

    return Text(sanitize_text(text, longest))
