"""Fingerprints of dry and of real steps on the GPU, and of compiled ones."""

from __future__ import annotations

import argparse
from typing import Any

from evaluation.figures import Figures
from evaluation.fingerprints.run import NAMES, archetypes, compiled


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Compare fingerprints. Nothing here is a timing."""
    names = NAMES if not arguments.quick else NAMES[::4]
    prints: dict[str, dict[str, dict[str, Any]]] = {}
    archetypes(figures, names, prints)
    compiled(figures, names[::3], prints)
