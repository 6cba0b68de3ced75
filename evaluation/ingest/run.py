"""`python -m evaluation ingest`: how fast the provider takes reports and telemetry in, and what a kill loses.

Each part is one module of this room with a function `measure(figures, arguments)`.
"""

from __future__ import annotations

import argparse

from evaluation.parts import run_parts

PARTS = {
    "throughput": "reports and telemetry of a large site, beside bare appends of equal batches",
    "kills": "reports and telemetry that were acknowledged, across kills of the provider",
    "agent_cost": "what the agent of a node costs: processor time and memory",
}
"""Module of this room to what it measures, in the order in which they run."""


def run(arguments: argparse.Namespace) -> int:
    """Measure all parts, or the one of `--part`. Returns the exit code."""
    return run_parts("ingest", PARTS, arguments, lambda part, to: part.measure(to, arguments))
