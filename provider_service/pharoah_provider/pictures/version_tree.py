"""The tree of versions: which behave the same, and how different the groups are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pharoah_learning.known_versions import SubArchetype
from pharoah_learning.models.merge_tree import merge_tree
from pharoah_provider.pictures._canvas import GREY, Series, blank, cluster_colour, open_sides, save, series_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW_INCHES = 0.24


class _Group(NamedTuple):
    """A version, or versions that have joined."""

    leaves: list[int]
    height: float
    """Square root of the price of joining."""


def draw_version_tree(path: Path, sub_archetypes: Sequence[SubArchetype]) -> None:
    """Draw the merge tree (a dendrogram) of the versions of one library under one archetype.

    The horizontal scale is the square root of the price of treating two groups as one, in chi-square
    (`models.merge_tree`): for two versions about their difference in standard errors. Colours are sub-archetypes.
    Raises ProviderError for fewer than two versions, without matplotlib, and where the file cannot be written.
    """
    series = series_of(sub_archetypes)
    tree = merge_tree(series.seen)
    groups = [_Group([at], 0.0) for at in range(len(series.names))]
    for left, right, price, _ in tree:
        leaves = sorted((groups[int(left)].leaves, groups[int(right)].leaves))
        groups.append(_Group(leaves[0] + leaves[1], float(np.sqrt(price))))
    figure = blank(9.0, 2.0 + _ROW_INCHES * (len(series.names) + len(sub_archetypes)))
    axes = figure.add_subplot()
    _draw_tree(axes, series, groups, [(int(merge[0]), int(merge[1])) for merge in tree])
    order = [series.names[at] for at in groups[-1].leaves]
    axes.yaxis.tick_right()
    axes.set_yticks(range(len(order)), order, fontsize=9)
    for label, at in zip(axes.get_yticklabels(), groups[-1].leaves, strict=True):
        label.set_color(_colour(series, [at]))
    axes.set_xlim(1.03 * groups[-1].height or 1.0, 0)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    open_sides(axes, ("top", "left", "right"))
    axes.set_xlabel("how different two groups are, in standard errors (square root of chi-square)", fontsize=9)
    first = sub_archetypes[0]
    axes.set_title(
        f"Versions of {first.library} that behave the same\nworkloads: {first.title}", loc="left", fontsize=11
    )
    _legend(axes, sub_archetypes)
    save(figure, path)


def _draw_tree(axes: Axes, series: Series, groups: Sequence[_Group], merges: Sequence[tuple[int, int]]) -> None:
    place = {at: row for row, at in enumerate(groups[-1].leaves)}
    middle = [float(place[at]) for at in range(len(series.names))]
    for number, (left, right) in enumerate(merges, len(series.names)):
        middle.append((middle[left] + middle[right]) / 2)
        height = groups[number].height
        for part in (left, right):
            at, leaves = middle[part], groups[part].leaves
            axes.plot([groups[part].height, height], [at, at], color=_colour(series, leaves), lw=1.7)
        sides = [middle[left], middle[right]]
        axes.plot([height, height], sides, color=_colour(series, groups[number].leaves), lw=1.7)


def _colour(series: Series, leaves: Sequence[int]) -> str:
    """The colour of the sub-archetype of some versions; grey for versions of several."""
    clusters = {series.cluster[at] for at in leaves}
    return cluster_colour(clusters.pop()) if len(clusters) == 1 else GREY


def _legend(axes: Axes, sub_archetypes: Sequence[SubArchetype]) -> None:
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=cluster_colour(at), lw=2.5, label=f"{one.range}: {one.in_words}")
        for at, one in enumerate(sub_archetypes)
    ]
    stable = "stable under resampling" if sub_archetypes[0].is_stable else "NOT stable under resampling"
    title = f"Sub-archetypes ({stable}, {sub_archetypes[0].stability:.2f}), beside the mean of all versions"
    legend = axes.figure.legend(handles=lines, title=title, loc="outside lower left", frameon=False, alignment="left")
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_fontsize(9)
