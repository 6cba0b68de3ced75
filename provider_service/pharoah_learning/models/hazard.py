"""Risk: the linear predictor of the survival model. Larger risk means sooner failure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def risk(features: Mapping[str, float], coefficients: Mapping[str, float], means: Mapping[str, float]) -> float:
    """Linear predictor of the Cox model (Cox 1972); 0 is the average of what it was fitted on.

    All three are by the name of the feature. A feature that is missing counts as average; one without a coefficient
    does not count.
    """
    averages = np.array([means[name] for name in coefficients])
    values = np.array([features.get(name, means[name]) for name in coefficients])
    return float((values - averages) @ np.array(list(coefficients.values())))
