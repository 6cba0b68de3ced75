"""The chart of versions in their order: what each one measures, and where something changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pharoah_learning.known_versions import FAILED, STRUCTURE, SubArchetype, VersionChange, name_of
from pharoah_learning.models.merge_tree import NOT_MEASURED
from pharoah_provider.pictures._canvas import GREY, Series, blank, cluster_colour, open_sides, save, series_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANEL_INCHES = 1.9
_LINES = 2
_MAX_LABELS = 40
"""Version labels that fit below the chart; of more versions, only some are named."""


def draw_version_chart(path: Path, sub_archetypes: Sequence[SubArchetype], changes: Sequence[VersionChange]) -> None:
    """Draw one panel for each quantity that changes, with the versions of one library from old to new.

    Points are versions with their intervals at 95 %, coloured by sub-archetype; vertical lines are meaningful changes,
    with what changed. Raises ProviderError for fewer than two versions, without matplotlib, and where the file cannot
    be written.
    """
    series = series_of(sub_archetypes)
    after = {change.after: change for change in changes if change.effects and change.after in series.names}
    changed = {effect.quantity for change in after.values() for effect in change.effects}
    shown = [name for name in series.quantities if name in changed] or list(series.quantities[:1])
    width = min(14.0, max(8.0, 2.0 + 0.3 * len(series.names)))
    figure = blank(width, 1.4 + _PANEL_INCHES * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(panels, shown, strict=True):
        _panel(axes, series, name, after)
    step = -(-len(series.names) // _MAX_LABELS)
    panels[-1].set_xticks(range(0, len(series.names), step), series.names[::step], rotation=90, fontsize=8)
    first = sub_archetypes[0]
    title = [f"What versions of {first.library} change, beside {series.names[0]}", f"workloads: {first.title}"]
    title += [] if after else ["nothing meaningful"]
    title += [
        f"from {change.after} on it is another archetype"
        for change in changes
        if change.after not in series.names and any(effect.quantity == STRUCTURE for effect in change.effects)
    ]
    panels[0].set_title("\n".join(title), loc="left", fontsize=11)
    save(figure, path)


def _panel(axes: Axes, series: Series, quantity: str, after: dict[str, VersionChange]) -> None:
    column = series.quantities.index(quantity)
    measured = np.flatnonzero(series.seen.error[:, column] < NOT_MEASURED)
    value, error = series.seen.mean[measured, column], 1.96 * series.seen.error[measured, column]
    base = value[0] if len(value) else 0.0
    middle, low, high = (_render(quantity, part - base) for part in (value, value - error, value + error))
    for at, row in enumerate(measured):
        colour = cluster_colour(series.cluster[row])
        axes.plot([row, row], [low[at], high[at]], color=colour, lw=1.2)
        axes.plot(row, middle[at], "o", color=colour, ms=4.5)
    axes.axhline(0, color=GREY, lw=0.6)
    axes.set_ylabel(_label(quantity), fontsize=9)
    axes.margins(y=0.25)
    open_sides(axes, ("top", "right"))
    steps = [(number, after[name].effects) for number, name in enumerate(series.names) if name in after]
    written = 0
    for number, effects in steps:
        axes.axvline(number - 0.5, color=GREY, lw=1, ls="--")
        for effect in effects:
            if effect.quantity == quantity:
                _write(axes, number - 0.5, written % _LINES, effect.numbers)
                written += 1


def _write(axes: Axes, at: float, line: int, text: str) -> None:
    """Write beside a change, in one of the lines above the panel, so that neighbours do not overlap."""
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    axes.annotate(
        text,
        (at, 1),
        xycoords=("data", "axes fraction"),
        xytext=(4, -9 - 11 * line),
        textcoords="offset points",
        fontsize=8,
        bbox=box,
    )


def _render(quantity: str, value: np.ndarray) -> np.ndarray:
    """Percent for logarithms and shares; a structure has no unit."""
    if quantity == STRUCTURE:
        return value
    percent: np.ndarray = 100 * value if quantity.startswith(FAILED) else 100 * np.expm1(value)
    return percent


def _label(quantity: str) -> str:
    """The name of a quantity beside its axis; all are relative to the oldest version."""
    return f"{name_of(quantity)}\n({'distance' if quantity == STRUCTURE else 'change in %'})"
