"""Sizes that torch keeps symbolic: scripts may print and compare those of operators without a stand-in.

Patches torch for the rest of the process; in the dry-run child only.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from pharoah.dryrun.exploration import UnknownValues
from pharoah.dryrun.places import is_library


def print_unknown_sizes() -> None:
    """Let scripts log counts that depend on values, as text or as a ratio."""
    numbers: list[tuple[Any, Any]] = [(torch.SymInt, 1), (torch.SymFloat, 1.0), (torch.SymBool, True)]
    for number, stand_in in numbers:
        number.__format__ = lambda _, spec, value=stand_in: format(value, spec)
        number.__str__ = lambda _, value=stand_in: str(value)
        number.__round__ = lambda self, *_: self
    numbers[1][0].__float__ = lambda _: 1.0


def decide_unknown_sizes(values: UnknownValues) -> None:
    """Let scripts compare counts that depend on values. torch's own comparisons of sizes keep their errors."""
    for kind in (torch.SymBool, torch.SymInt, torch.SymFloat):
        kind.__bool__ = _decide(kind.__bool__, values)  # type: ignore[method-assign]


def _decide(original: Any, values: UnknownValues) -> Any:
    @functools.wraps(original)
    def decide(self: Any) -> bool:
        try:
            return bool(original(self))
        except GuardOnDataDependentSymNode:
            if is_library(sys._getframe(1).f_code.co_filename):
                raise
            return values.decide(False, "branches on a count that depends on values")

    return decide
