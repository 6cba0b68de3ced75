"""What the pictures share: the versions as arrays, the page, the file and the colours."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pharoah_learning.known_versions import SubArchetype
from pharoah_learning.models.merge_tree import NOT_MEASURED, Behaviours
from pharoah_learning.version_order import version_key
from pharoah_serving.errors import ProviderError
from pharoah_system.files import write_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5", "#b83280", "#2c7a7b", "#975a16", "#4a5568")
"""One for each cluster; they repeat after eight."""
GREY = "#718096"


class Series(NamedTuple):
    """The versions of one library under one archetype, from old to new."""

    names: list[str]
    cluster: list[int]
    """The number of the sub-archetype of each."""
    quantities: list[str]
    seen: Behaviours


def series_of(sub_archetypes: Sequence[SubArchetype]) -> Series:
    """All versions in their order. Raises ProviderError for fewer than two."""
    found = [(version, at) for at, one in enumerate(sub_archetypes) for version in one.versions]
    if len(found) < 2:
        raise ProviderError("a picture of versions needs two versions")
    found.sort(key=lambda pair: version_key(pair[0].version))
    quantities = sorted({name for version, _ in found for name in version.behaviour})
    mean = [[v.behaviour[name].value if name in v.behaviour else 0.0 for name in quantities] for v, _ in found]
    error = [
        [v.behaviour[name].error if name in v.behaviour else NOT_MEASURED for name in quantities] for v, _ in found
    ]
    names, cluster = [version.version for version, _ in found], [at for _, at in found]
    return Series(names, cluster, quantities, Behaviours(np.array(mean), np.array(error)))


def cluster_colour(cluster: int) -> str:
    """The colour of a sub-archetype by its number."""
    return COLOURS[cluster % len(COLOURS)]


def blank(width: float, height: float) -> Figure:
    """A page of this size in inches. Raises ProviderError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ProviderError("drawing needs matplotlib: pip install 'pharoah[draw]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write PNG, SVG or PDF, by the ending. Raises ProviderError when the file cannot be written, and for a name
    without an ending."""
    if not path.suffix:
        raise _unknown_format(path)
    try:
        figure.savefig(drawn := io.BytesIO(), dpi=130, bbox_inches="tight", format=path.suffix.removeprefix("."))
        write_output(path, drawn.getvalue())
    except OSError as error:
        raise ProviderError(f"{path}: {error.strerror or error}") from None
    except ValueError:
        raise _unknown_format(path) from None


def _unknown_format(path: Path) -> ProviderError:
    return ProviderError(f"{path}: pictures are PNG, SVG or PDF, by the ending of their name")


def open_sides(axes: Axes, sides: Sequence[str]) -> None:
    """Leave out these sides of the frame."""
    axes.spines[list(sides)].set_visible(False)
