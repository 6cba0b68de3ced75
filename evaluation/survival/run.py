"""`python -m evaluation survival`: how well failures are seen before they come.

Each part is one module of this room with a function `measure(figures, arguments)`.
"""

from __future__ import annotations

import argparse

from evaluation.figures import Figures
from evaluation.parts import run_parts
from evaluation.survival import fleet

PARTS = {
    "titan": "lives of real GPUs: the partial likelihood, beside lifelines",
    "fleet": "a fleet that degrades: hazards, alarms and calibration, beside simpler methods and the true hazard",
    "nodes": "the hazard model of nodes, from the database of a provider to the forecast in a sidecar",
    "scoring": "time to score ten thousand units, beside lifelines",
}
"""Module of this room to what it measures, in the order in which they run."""


def run(arguments: argparse.Namespace) -> int:
    """Measure all parts, or the one of `--part`. Returns the exit code."""
    if arguments.simulator_data:
        figures = Figures("survival")
        fleet.measure_file(figures, arguments.simulator_data, arguments.seed)
        return figures.finish(arguments)
    return run_parts("survival", PARTS, arguments, lambda part, to: part.measure(to, arguments))
