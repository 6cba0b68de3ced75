"""`python -m evaluation validation`: whether nodes are rightly called slower, and classed.

Each part is one module of this room with a function `measure(figures, arguments)`.
"""

from __future__ import annotations

import argparse

from evaluation.parts import run_parts

PARTS = {
    "comparison": "a node against its fleet and its past: false alarms and faults found, beside simpler methods",
    "node_class": "the class of a node from reruns, beside simpler rules",
    "node_class_real": "the class of real nodes from real cells",
    "silent_corruption": "a bit flipped in products on one node: replayed steps and a micro-benchmark",
    "superbench": "files of SuperBench, read and written again",
}
"""Module of this room to what it measures, in the order in which they run."""


def run(arguments: argparse.Namespace) -> int:
    """Measure all parts, or the one of `--part`. Returns the exit code."""
    return run_parts("validation", PARTS, arguments, lambda part, to: part.measure(to, arguments))
