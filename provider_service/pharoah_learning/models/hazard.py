"""Scoring of degradation: windows of a run to features, features to risk.

Sign convention: larger risk means sooner failure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FEATURES = ("slowdown", "trend", "growth")
RECENT_WINDOWS = 3


def features(step_ratios: Sequence[float], memory_ratios: Sequence[float]) -> NDArray[np.float64]:
    """Features after the last of these windows (oldest first, at least one).

    slowdown: log of the median of the last three step ratios; trend: mean log ratio of the last two less that of the
    three before; growth: log of the last memory ratio. All clipped to [-2, 2].
    """
    steps = np.log(np.clip(np.asarray(step_ratios[-(RECENT_WINDOWS + 2) :], dtype=float), 0.05, 50))
    slowdown = np.median(steps[-RECENT_WINDOWS:])
    trend = steps[-2:].mean() - steps[:-2].mean() if len(steps) > 2 else 0.0
    growth = np.log(np.clip(memory_ratios[-1], 0.05, 50))
    return np.clip(np.array([slowdown, trend, growth], dtype=np.float64), -2, 2)


def risk(x: NDArray[np.float64], coefficients: Sequence[float], means: Sequence[float]) -> float:
    """Linear predictor of the Cox model (Cox 1972); 0 is the average of what it was fitted on."""
    return float((x - np.asarray(means)) @ np.asarray(coefficients))


def probability(risk_score: float, hazard_per_second: float, horizon_seconds: float) -> float:
    """P(failure within the horizon), covariates frozen: 1 - exp(-exp(risk) * hazard * horizon)."""
    return float(-np.expm1(-np.exp(np.clip(risk_score, -50, 50)) * hazard_per_second * horizon_seconds))
