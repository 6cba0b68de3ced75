"""`python -m evaluation learning`: what offline learning finds where the truth is known."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from evaluation.figures import Figures
from evaluation.learning import confirmations, false_blocks, granularity, incompatibilities


def run(arguments: argparse.Namespace) -> int:
    """Measure all parts, or the one of `--part`. Returns the exit code."""
    figures = Figures("learning")
    if arguments.simulator_data:
        incompatibilities.measure_file(figures, arguments.simulator_data)
        return figures.finish(arguments)
    parts: dict[str, Callable[[Figures], None]] = {
        "incompatibilities": partial(incompatibilities.measure, seed=arguments.seed, quick=arguments.quick),
        "confirmations": partial(confirmations.measure, seed=arguments.seed, quick=arguments.quick),
        "false_blocks": partial(false_blocks.measure, seed=arguments.seed, quick=arguments.quick),
        "granularity": partial(granularity.measure, seed=arguments.seed, quick=arguments.quick),
    }
    for name, measure in parts.items():
        if arguments.part in (None, name):
            print(f"\n{name}", flush=True)
            measure(figures)
    return figures.finish(arguments)
