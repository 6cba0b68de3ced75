"""A skeleton as a picture: boxes in the order of the step, repeats as frames, other skeletons beneath to compare."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

from pharoah._errors import PharoahError
from pharoah_archetypes import Skeleton, differences
from pharoah_archetypes.canonical import PHASES
from pharoah_archetypes.sequences import Element, flatten, fold
from pharoah_system.files import write_output

_COLOURS = {
    "gemm": "#4c78a8", "bmm": "#4c78a8", "conv": "#4c78a8", "up": "#9ecae9", "rnn": "#4c78a8",
    "attn": "#f58518", "xattn": "#f58518", "emb": "#54a24b", "embbag": "#54a24b", "idx": "#88d27a", "route": "#88d27a",
    "act": "#bab0ac", "softmax": "#bab0ac", "pool": "#bab0ac", "scan": "#bab0ac", "fft": "#bab0ac",
    "bnorm": "#d8b5a5", "gnorm": "#d8b5a5", "nll": "#b279a2", "bce": "#b279a2", "mse": "#b279a2", "ctc": "#b279a2",
    "grad": "#79706e", "ext": "#e45756",
}  # fmt: skip
_COLLECTIVE = "#eeca3b"
_DARK = {"#4c78a8", "#79706e", "#b279a2", "#e45756"}
_WIDTH, _ROW, _GAP, _FRAME, _LETTER = 12.0, 0.62, 0.12, 0.14, 0.0095
"""Inches: the widest picture, a row of boxes, between boxes, a frame's border, a letter of size 1."""


class TitledSkeleton(NamedTuple):
    """A skeleton, and the title above its picture."""

    title: str
    skeleton: Skeleton


def draw(path: Path, skeleton: Skeleton, title: str, others: Sequence[TitledSkeleton] = ()) -> None:
    """Write an SVG or PNG of a job, by the name's ending.

    Of the others, red outlines mark what the first skeleton does not have, and a line says what it has instead.
    Raises PharoahError when matplotlib is not installed or the file cannot be written.
    """
    _paint(path, [TitledSkeleton(title=title, skeleton=skeleton), *others], _Page(skeleton))


def draw_all(path: Path, skeletons: Sequence[TitledSkeleton]) -> None:
    """Write an SVG or PNG of some skeletons, without comparing them. Raises as `draw` does."""
    _paint(path, skeletons, _Page())


def check_that_it_can_be_drawn() -> None:
    """For commands that work before they draw. Raises PharoahError when matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise PharoahError("drawing needs matplotlib: pip install 'pharoah[draw]'") from None


def _paint(path: Path, skeletons: Sequence[TitledSkeleton], page: _Page) -> None:
    """Raises PharoahError."""
    check_that_it_can_be_drawn()
    from matplotlib.figure import Figure

    for title, skeleton in skeletons:
        page.add(title, skeleton)
    figure = Figure(figsize=(page.width + 0.6, page.depth + 0.3))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.3, page.width + 0.3), ylim=(page.depth + 0.1, -0.2))
    axes.axis("off")
    page.paint(axes)
    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, dpi=110, format=path.suffix.removeprefix(".") or None)
        write_output(path, drawn.getvalue())
    except OSError as error:
        raise PharoahError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise PharoahError(f"{path}: {error}") from None


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    width: float
    letter: str
    new: bool


@dataclass(frozen=True)
class _Frame:
    x: float
    y: float
    width: float
    level: int


class _Page:
    """Places skeletons beneath each other, then paints all at once."""

    def __init__(self, first: Skeleton | None = None) -> None:
        """With a first one, all are compared with it."""
        self.depth, self.width = 0.0, 0.0
        self._first = first
        self._items: list[_Box | _Frame] = []
        self._texts: list[tuple[float, float, str, dict[str, Any]]] = []

    def add(self, title: str, skeleton: Skeleton) -> None:
        self._text(0.0, 0.15, title, 11, fontweight="bold")
        self.depth += 0.4
        for line in differences(skeleton, self._first) if self._first else []:
            self._text(0.0, 0.03, f"this job, {line}", 9, color="#d62728")
            self.depth += 0.24
        for phase in PHASES:
            if skeleton.phases[phase]:
                self._phase(phase, skeleton)
        if skeleton.traits:
            self._text(0.0, 0.12, f"with {', '.join(sorted(skeleton.traits))}", 9)
            self.depth += 0.35
        self.depth += 0.25

    def _text(self, x: float, down: float, text: str, size: int, **style: str) -> None:
        self._texts.append((x, self.depth + down, text, {"fontsize": size, **style}))
        self.width = max(self.width, x + len(text) * size * _LETTER)

    def _phase(self, phase: str, skeleton: Skeleton) -> None:
        elements = fold(skeleton.phases[phase])
        new = iter(_new(flatten(fold((self._first or skeleton).phases[phase])), flatten(elements)))
        self._text(0.0, 0.32, phase, 9, color="#555555")
        x = 0.6
        for element in elements:
            width = _width(element)
            if x + width > _WIDTH and x > 0.6:
                x, self.depth = 0.6, self.depth + _ROW + _GAP
            self._place(element, x, self.depth, 0, new)
            x += width + _GAP
            self.width = max(self.width, x)
        self.depth += _ROW + _GAP

    def _place(self, element: Element, x: float, y: float, level: int, new: Any) -> None:
        if isinstance(element, str):
            self._items.append(_Box(x, y, _width(element), element, next(new)))
            return
        self._items.append(_Frame(x, y, _width(element), level))
        x += _FRAME
        for part in element:
            self._place(part, x, y, level + 1, new)
            x += _width(part) + _GAP

    def paint(self, axes: Any) -> None:
        from matplotlib.patches import FancyBboxPatch

        for item in self._items:
            inset = 0.06 * (item.level + 1) if isinstance(item, _Frame) else 0.2
            shape: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=0.06", "transform": axes.transData}
            at, height = (item.x, item.y + inset - 0.06), _ROW - 2 * inset + 0.12
            if isinstance(item, _Frame):
                axes.add_patch(FancyBboxPatch(at, item.width, height, fc="#f2f2f2", ec="#999999", lw=0.8, **shape))
                axes.text(item.x + item.width - 0.03, at[1] + 0.09, "+", ha="right", fontsize=8, color="#777777")
                continue
            outline: dict[str, Any] = {"ec": "#d62728", "lw": 2.0} if item.new else {"ec": "white", "lw": 0.5}
            colour = _COLOURS.get(item.letter, _COLLECTIVE)
            axes.add_patch(FancyBboxPatch(at, item.width, height, fc=colour, **outline, **shape))
            ink = "white" if colour in _DARK else "#222222"
            middle = at[1] + height / 2
            axes.text(item.x + item.width / 2, middle, item.letter, ha="center", va="center", fontsize=8, color=ink)
        for x, y, text, style in self._texts:
            axes.text(x, y, text, va="center", **style)


def _width(element: Element) -> float:
    if isinstance(element, str):
        return 0.24 + 0.085 * len(element)
    return 2 * _FRAME + sum(map(_width, element)) + _GAP * (len(element) - 1) + 0.06


def _new(before: list[str], after: list[str]) -> list[bool]:
    """Which letters of `after` are not in `before`, position by position."""
    marks = [True] * len(after)
    for block in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        marks[block.b : block.b + block.size] = [False] * block.size
    return marks
