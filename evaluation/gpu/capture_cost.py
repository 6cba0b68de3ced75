"""What capture costs in steps on the GPU, beside other tools."""

from __future__ import annotations

import argparse
import random

from evaluation.figures import Figures
from evaluation.fingerprints.run import cost

ROUNDS = 3
"""How often each model is measured."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Measure the cost of capture."""
    cost(figures, 1 if arguments.quick else ROUNDS, random.Random(arguments.seed))
