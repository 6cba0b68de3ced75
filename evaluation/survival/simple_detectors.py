"""Detectors that nobody has to fit: thresholds of each signal, cumulative sums, and the age of a unit."""

from __future__ import annotations

import numpy as np

from evaluation.survival.simulated_fleet import NAMES, FleetTruth
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_protocol.signal_features import FEATURES, SignalKind

SLACK = 0.5
"""Standard deviations that a cumulative sum lets pass (Page 1954)."""
_LEVELS = tuple(at for at, name in enumerate(NAMES) if name.endswith((".recent", ".level")))
"""Features that are plain values of a signal."""
assert len(_LEVELS) == sum(name.endswith(".excess") for name in NAMES) and FEATURES[SignalKind.GAUGE][0] == "level"


def simple_scores(train: FleetTruth, truth: FleetTruth) -> dict[str, Array]:
    """The scores of each detector, shape (units, hours), NaN where a unit is not observed."""
    healthy = train.fleet.features[train.fleet.cause == 0][..., list(_LEVELS)]
    seen = healthy[np.arange(healthy.shape[1]) <= train.fleet.last[train.fleet.cause == 0, None]]
    middle, spread = np.median(seen, axis=0), seen.std(axis=0)
    observed = truth.fleet.observed
    far = (truth.fleet.features[..., list(_LEVELS)] - middle) / spread
    total, sums = np.zeros(observed.shape), np.zeros((len(observed), len(_LEVELS)))
    for hour in range(observed.shape[1]):
        sums = np.maximum(0.0, sums + far[:, hour] - SLACK)
        total[:, hour] = np.log1p(sums).sum(axis=1)
    age = np.broadcast_to(truth.fleet.features[:, :1, NAMES.index("age")], observed.shape).astype(float)
    return {
        "thresholds": np.where(observed, far.max(axis=2), np.nan),
        "cumulative sums": np.where(observed, total, np.nan),
        "age": np.where(observed, age, np.nan),
    }
