"""The measurements of `evaluation capture`, on a CUDA device."""

from __future__ import annotations

import argparse
import random
from typing import Any

from evaluation.figures import Figures
from evaluation.fingerprints.run import NAMES, archetypes, compiled, cost

ROUNDS = 3
"""How often the cost of capture is measured."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Archetypes of dry and real steps, compiled steps, and what capture costs."""
    names = NAMES if not arguments.quick else NAMES[::4]
    prints: dict[str, dict[str, dict[str, Any]]] = {}
    archetypes(figures, names, prints)
    compiled(figures, names[::3], prints)
    cost(figures, ROUNDS, random.Random(arguments.seed))
