"""Results: JSON lines, one object for each node, with the key `node` and metrics (`results-summary.jsonl`)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pharoah_system.bounded_reading import JsonLimits, UnreadableInput, parse_json, read_text

NODE = "node"
Number = int | float
LINE_LIMITS = JsonLimits(reads_nan=True)
"""One line is one node. Python writes NaN for a metric that it could not compute."""
MAX_BYTES = 64 << 20
"""A thousand nodes with 1,500 metrics each."""


class SuperBenchError(ValueError):
    """A file that cannot be used; the message names the file, the place in it and what is expected."""


@dataclass(frozen=True)
class NodeResult:
    """The metrics of one node. Raises ValueError that names the metric."""

    node: str
    metrics: Mapping[str, Number | None]
    """Name to value; None for a metric that was not measured."""

    def __post_init__(self) -> None:
        if not self.node or not isinstance(self.node, str):
            raise ValueError(f"node: {self.node!r} is not a name")
        for name, value in self.metrics.items():
            check_metric(name, value, may_be_missing=True)

    @classmethod
    def from_data(cls, data: Any, *, skips_others: bool = False) -> NodeResult:
        """The result of one line. Raises ValueError, also for a value that is no number, unless it skips those."""
        if not isinstance(data, dict):
            raise ValueError("expected one JSON object for each node")
        if NODE not in data:
            raise ValueError("the key node is missing; expected one JSON object for each node")
        metrics = {name: value for name, value in data.items() if name != NODE}
        return cls(data[NODE], {name: one for name, one in metrics.items() if not skips_others or _is_number(one)})

    def line(self) -> str:
        """The JSON of this node, without the end of the line."""
        return json.dumps({NODE: self.node, **self.metrics}, allow_nan=False)


def check_metric(name: object, value: object, *, may_be_missing: bool = False) -> None:
    """Raise ValueError that names the metric, unless its value is a finite number."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"{name!r} is not the name of a metric")
    if value is None and may_be_missing:
        return
    if not _is_number(value):
        raise ValueError(f"{name}: {value!r:.40} is not a number")


def read_results(path: Path, *, skips_others: bool = False) -> list[NodeResult]:
    """The nodes of a file, in its order, also without the values that are no numbers. Raises SuperBenchError that names
    the row, and OSError."""
    nodes = []
    for number, line in enumerate(text_of(path).split("\n"), 1):
        if line.strip():
            try:
                nodes.append(
                    NodeResult.from_data(parse_json(line, f"row {number}", LINE_LIMITS), skips_others=skips_others)
                )
            except UnreadableInput as error:
                raise SuperBenchError(f"{path}: {error}") from None
            except ValueError as error:
                raise SuperBenchError(f"{path}: row {number}: {error}") from None
    return nodes


def results_text(nodes: Iterable[NodeResult]) -> str:
    """The content of a file of results."""
    return "".join(f"{node.line()}\n" for node in nodes)


def text_of(path: Path) -> str:
    """The text of a file. Raises SuperBenchError for one that is large or not UTF-8, and OSError."""
    try:
        return read_text(path, MAX_BYTES)
    except UnreadableInput as error:
        raise SuperBenchError(str(error)) from None


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, Number) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer that is too large for a float
        return False
