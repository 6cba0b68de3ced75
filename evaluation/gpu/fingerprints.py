"""Fingerprints of dry and of real steps on the GPU, and of compiled ones."""

from __future__ import annotations

import argparse
from typing import Any

from evaluation.figures import Figures
from evaluation.fingerprints.run import NAMES, archetypes, compiled

QUICK = ["gpt2", "bert", "t5", "lstm", "resnet", "mixtral", "wav2vec2", "whisper"]
"""Families with dropout, recurrence, convolutions and experts."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Compare fingerprints. Nothing here is a timing."""
    names = NAMES if not arguments.quick else QUICK
    prints: dict[str, dict[str, dict[str, Any]]] = {}
    archetypes(figures, names, prints)
    compiled(figures, names[::3], prints)
