"""Proportions from few trials."""

from __future__ import annotations

from math import sqrt

Z95 = 1.959963984540054


def wilson(failures: int, runs: int, z: float = Z95) -> tuple[float, float]:
    """Wilson score interval of a failure rate (Wilson 1927); (0, 1) without runs.

    Raises ValueError if failures > runs.
    """
    if not 0 <= failures <= runs:
        raise ValueError(f"{failures} failures in {runs} runs")
    if runs == 0:
        return 0.0, 1.0
    rate, square = failures / runs, z * z
    centre = (rate + square / (2 * runs)) / (1 + square / runs)
    half = z * sqrt(rate * (1 - rate) / runs + square / (4 * runs * runs)) / (1 + square / runs)
    return max(0.0, centre - half), min(1.0, centre + half)
