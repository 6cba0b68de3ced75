"""`python -m evaluation gpu` (`make gpu-check`): what only a machine with a GPU of NVIDIA shows.

Each part is one module of this room with a function `measure(figures, arguments)`. Clocks, power limits and partitions
of the GPU are read and never changed.
"""

from __future__ import annotations

import argparse
import os

from evaluation.models.zoo import DEVICE
from evaluation.parts import run_parts

PARTS = {
    "signals": "signals of the GPU while it is idle and while it works, and what reading them costs",
    "micro_benchmarks": "micro-benchmarks on the GPU, and errors that are planted in its memory",
    "fingerprints": "fingerprints of dry and real steps, and of compiled ones",
    "capture_cost": "what capture costs, beside other tools",
    "attention": "kernels of attention that torch takes, beside what a dry run expects",
    "memory": "memory that dry runs predict, beside real runs and the allocator of torch",
    "watched_job": "what it costs a job to be watched",
    "memory_leak": "a leak in the GPU's memory, until the job fails",
}
"""Module of this room to what it measures, in the order in which they run."""


def run(arguments: argparse.Namespace) -> int:
    """Measure all parts, or the one of `--part`. Returns the exit code."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("evaluation gpu: torch sees no GPU here; run it where `torch.cuda.is_available()`")
    os.environ[DEVICE] = "cuda"
    return run_parts("gpu", PARTS, arguments, lambda part, to: part.measure(to, arguments))
