"""A picture of the incompatibility table: jobs and versions by contexts, with severity, failure rate and counts.

What it is drawn from are rows as the listing `table` has them, so that an exported table can be drawn elsewhere. It
needs matplotlib (`pip install "pharoah[draw]"`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pharoah_archetypes.inventory import inventory
from pharoah_protocol.vocabulary import Rung, Scope, Severity
from pharoah_provider.pictures._canvas import GREY, blank, save
from pharoah_serving.errors import ProviderError

MAX_LINES = 60
"""With more lines than this, those without a failure are left out."""
TITLE_COLUMNS = 44
"""Characters of a title in one line of the picture."""
INK = "#2d3748"
RAMPS = {
    Severity.OK: ("#e3f1e5", "#e3f1e5"),
    Severity.INFO: ("#e6ecf3", "#a9bdd4"),
    Severity.WARN: ("#fbeecb", "#e8b64a"),
    Severity.BLOCK: ("#f6d3cd", "#ea968b"),
}
"""Colours of a severity, where nothing has failed and where every run has."""
MEANINGS = {
    Severity.OK: "worked",
    Severity.INFO: "informs (about other jobs or limits)",
    Severity.WARN: "warns (darker: more failed)",
    Severity.BLOCK: "blocks",
}
NO_DATA = "#f4f5f7"

Row = dict[str, Any]


class NothingToDrawError(ProviderError):
    """There is no row of the scope and the rung that were asked for."""


class Place(NamedTuple):
    """Where a cell of the picture is."""

    line: str
    column: str


@dataclass(frozen=True)
class Heatmap:
    """What is drawn: lines from top to bottom, columns from left to right."""

    release: int
    lines: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[Place, Row]
    """The row that is shown in each place."""
    left_out: int
    """Lines without a failure that are not shown."""


def heatmap(rows: Iterable[Row], scope: Scope = Scope.SERVER, rung: Rung = Rung.EXACT) -> Heatmap:
    """The picture of the rows of one scope and rung. Raises NothingToDrawError when there are none."""
    chosen = [row for row in rows if (row["scope"], row["rung"]) == (scope, rung)]
    if not chosen:
        raise NothingToDrawError(f"the table has no row of scope {scope} and rung {rung}")
    varying = _varying_versions(chosen)
    names = _column_names(chosen)
    cells: dict[Place, Row] = {}
    for row in sorted(chosen, key=_weight):
        cells[Place(_line(row, varying), names[row["context"]])] = row  # of several rows the strongest is shown
    lines = sorted({place.line for place in cells}, key=_in_order)
    failing = {place.line for place, row in cells.items() if row["failures"]}
    shown = lines if len(lines) <= MAX_LINES else [line for line in lines if line in failing][:MAX_LINES]
    return Heatmap(
        release=int(chosen[0]["release"]),
        lines=tuple(shown),
        columns=tuple(sorted(set(names.values()))),
        cells={place: row for place, row in cells.items() if place.line in set(shown)},
        left_out=len(lines) - len(shown),
    )


def figure_of(picture: Heatmap) -> Any:
    """The picture as a `matplotlib.figure.Figure`. Raises ProviderError without matplotlib."""
    figure = blank(3.6 + 1.7 * len(picture.columns), 1.5 + 0.5 * len(picture.lines))
    axis = figure.subplots()
    _draw_cells(axis, picture)
    _draw_frame(axis, picture)
    return figure


def draw(picture: Heatmap, path: Path) -> None:
    """Write the picture; the ending of the file is its format. Raises ProviderError without matplotlib, and for a
    file that cannot be written."""
    save(figure_of(picture), path)


def _draw_cells(axis: Any, picture: Heatmap) -> None:
    from matplotlib.patches import Rectangle

    for y, line in enumerate(picture.lines):
        for x, column in enumerate(picture.columns):
            row = picture.cells.get(Place(line, column))
            axis.add_patch(Rectangle((x, y), 1, 1, facecolor=_colour(row), edgecolor="white", lw=2))
            axis.text(
                x + 0.5, y + 0.5, _text(row), ha="center", va="center", fontsize=8.5, color=INK if row else GREY,
                linespacing=1.25,
            )  # fmt: skip


def _draw_frame(axis: Any, picture: Heatmap) -> None:
    """Titles, names of nodes, and the legend."""
    from matplotlib.patches import Patch

    axis.set_xlim(0, len(picture.columns))
    axis.set_ylim(len(picture.lines), 0)
    axis.xaxis.tick_top()
    axis.set_xticks([x + 0.5 for x in range(len(picture.columns))], [_wrap(name, 18) for name in picture.columns])
    axis.set_yticks([y + 0.5 for y in range(len(picture.lines))], [_wrap(line) for line in picture.lines], fontsize=8)
    axis.tick_params(length=0, colors=INK)
    axis.spines[:].set_visible(False)
    note = f"; {picture.left_out} jobs that never failed are not shown" if picture.left_out else ""
    axis.set_title(
        f"Runs that failed, of all runs, by job and nodes (release {picture.release}{note})",
        loc="left", fontsize=11, color=INK, pad=14,
    )  # fmt: skip
    used = {Severity(row["severity"]) for row in picture.cells.values() if row["severity"] in tuple(Severity)}
    handles = [Patch(facecolor=RAMPS[one][1], label=MEANINGS[one]) for one in Severity if one in used]
    axis.legend(
        handles=[*handles, Patch(facecolor=NO_DATA, edgecolor="#cbd2dc", label="not tried, or revoked")],
        loc="upper left", bbox_to_anchor=(0, -0.02), ncols=4, frameon=False, fontsize=8.5,
    )  # fmt: skip


def _colour(row: Row | None) -> str | tuple[float, ...]:
    if row is None or row["severity"] not in tuple(Severity):
        return NO_DATA
    from matplotlib.colors import to_rgb

    low, high = (to_rgb(colour) for colour in RAMPS[Severity(row["severity"])])
    rate = row["failures"] / row["runs"] if row["runs"] else 0.0
    return tuple(float(a + (b - a) * rate) for a, b in zip(low, high, strict=True))


def _text(row: Row | None) -> str:
    if row is None:
        return "not tried"
    if row["severity"] not in tuple(Severity):
        return str(row["severity"])
    counted = f"{row['failures']} of {row['runs']}"
    return f"{row['outcome']}\n{counted}" if row["failures"] else counted


def _weight(row: Row) -> tuple[int, int]:
    known = row["severity"] in tuple(Severity)
    return Severity(row["severity"]).strength if known else -1, row["failures"]


def _line(row: Row, varying: Sequence[str]) -> str:
    """The title, with the versions in which the rows differ."""
    versions = [token for token in row["tokens"].split() if token.partition("=")[0] in varying]
    return " ".join([row["title"] or "-", *versions])


def _in_order(line: str) -> tuple[tuple[int, str], ...]:
    """The order of lines: numbers in them by their size."""
    return tuple((len(part), part) if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", line))


def _varying_versions(rows: Sequence[Row]) -> list[str]:
    """The software of which the rows name several versions."""
    tokens = {token for row in rows for token in row["tokens"].split()}
    names = [software.name for software in inventory()]
    return [name for name in names if sum(token.startswith(f"{name}=") for token in tokens) > 1]


def _column_names(rows: Sequence[Row]) -> dict[str, str]:
    """Id of a context or device model to its nodes; the id where no node is known, or two have the same ones."""
    nodes = {row["context"]: row["nodes"] for row in rows}
    taken = list(nodes.values())
    return {one: name if name and taken.count(name) == 1 else one[:8] for one, name in nodes.items()}


def _wrap(text: str, columns: int = TITLE_COLUMNS) -> str:
    return "\n".join(textwrap.wrap(text.replace("+", " + "), columns, break_on_hyphens=False)) or text
