"""Evaluations that consist of parts: each part is one module of a room, measured and written into the docs alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from evaluation.figures import Figures, timed


def run_parts(
    room: str, parts: Mapping[str, str], arguments: argparse.Namespace, measure: Callable[[Any, Figures], None]
) -> int:
    """Measure all parts of `evaluation.ROOM`, or the one of `--part`. Returns the exit code.

    `parts`: name of a module to what it measures. `measure(module, figures)` measures one of them.
    """
    chosen = [arguments.part] if arguments.part else list(parts)
    if chosen[0] not in parts:
        print(f"--part {arguments.part}: not a part; there are {', '.join(parts)}", file=sys.stderr)
        return 2
    figures = Figures(room)
    for name in chosen:
        part = Figures(f"{room} {name}")
        timed(parts[name], partial(measure, import_module(f"evaluation.{room}.{name}"), part))
        part.document(arguments)
        figures.include(part)
    figures.print_all()
    return figures.write(arguments.out)
