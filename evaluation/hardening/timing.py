"""What the provider reads off the times and sizes of messages: the games of `evaluation.privacy.query_timing`."""

from __future__ import annotations

from evaluation.figures import Figures
from evaluation.privacy import query_timing


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """`timing_auc_max`, and one row for each game."""
    query_timing.measure(figures, quick, seed)
