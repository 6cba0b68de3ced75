"""Proportions from few trials."""

from __future__ import annotations

import scipy

CONFIDENCE_LEVEL = 0.95


def wilson(failures: int, runs: int) -> tuple[float, float]:
    """Wilson score interval of a failure rate (Wilson 1927) at 95 %; (0, 1) without runs.

    Raises ValueError if failures > runs.
    """
    if not 0 <= failures <= runs:
        raise ValueError(f"{failures} failures in {runs} runs")
    if runs == 0:
        return 0.0, 1.0
    interval = scipy.stats.binomtest(failures, runs).proportion_ci(confidence_level=CONFIDENCE_LEVEL, method="wilson")
    return max(0.0, float(interval.low)), min(1.0, float(interval.high))
