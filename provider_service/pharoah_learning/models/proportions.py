"""Proportions from few trials."""

from __future__ import annotations

from scipy.stats import binomtest

CONFIDENCE_LEVEL = 0.95
CONFIDENCE_WIDTHS = (0.6, 0.35, 0.15)
"""An interval that is at most this wide is in bucket 1, 2, 3."""


def wilson(failures: int, runs: int) -> tuple[float, float]:
    """Wilson score interval of a failure rate (Wilson 1927) at 95 %; (0, 1) without runs.

    Raises ValueError if failures > runs.
    """
    if not 0 <= failures <= runs:
        raise ValueError(f"{failures} failures in {runs} runs")
    if runs == 0:
        return 0.0, 1.0
    interval = binomtest(failures, runs).proportion_ci(confidence_level=CONFIDENCE_LEVEL, method="wilson")
    return max(0.0, float(interval.low)), min(1.0, float(interval.high))


def confidence(failures: int, runs: int) -> int:
    """Four buckets by the width of the Wilson interval: 0 (wider than 0.6) to 3 (at most 0.15)."""
    low, high = wilson(failures, runs)
    return sum(high - low <= width for width in CONFIDENCE_WIDTHS)
