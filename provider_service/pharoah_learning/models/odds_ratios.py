"""The odds ratio of two groups with few runs, with an interval that is right however few they are."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

CONFIDENCE_LEVEL = 0.95
_HALF = 0.5
"""Added to each count of an estimate (Haldane 1955, Anscombe 1956), so that it is finite where nothing has failed."""


class OddsRatio(NamedTuple):
    """How many times larger the odds of failing are in the first group. All three are NaN where a group is empty."""

    value: float
    """The estimate of Haldane."""
    low: float
    high: float
    """The exact conditional interval at 95 % (Fisher 1935); infinite where it has no upper end."""


@lru_cache(maxsize=4096)  # many rows of a table have the same counts, and an exact interval takes milliseconds
def odds_ratio(failures: int, runs: int, base_failures: int, base_runs: int) -> OddsRatio:
    """The odds ratio of `failures` of `runs` to `base_failures` of `base_runs`.

    Raises ValueError where a group has more failures than runs.
    """
    if not (0 <= failures <= runs and 0 <= base_failures <= base_runs):
        raise ValueError(f"{failures} failures in {runs} runs, {base_failures} in {base_runs}")
    if not runs or not base_runs:
        return OddsRatio(float("nan"), float("nan"), float("nan"))
    table = np.array([[failures, runs - failures], [base_failures, base_runs - base_failures]])
    (a, b), (c, d) = (table + _HALF).tolist()
    interval = scipy.stats.contingency.odds_ratio(table).confidence_interval(confidence_level=CONFIDENCE_LEVEL)
    low, high = float(interval.low), float(interval.high)
    # Without any failure, or without any run that worked, every odds ratio agrees with the counts.
    return OddsRatio(a * d / (b * c), 0.0 if np.isnan(low) else low, float("inf") if np.isnan(high) else high)
