"""Detectors that nobody has to fit: thresholds of each signal, cumulative sums, and the age of a unit."""

from __future__ import annotations

import numpy as np

from evaluation.survival.simulated_fleet import FleetTruth
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_protocol.signal_features import FEATURES, SignalKind

SLACK = 0.5
"""Standard deviations that a cumulative sum lets pass (Page 1954)."""
AGE = "age"
_LEVELS = tuple(f".{FEATURES[kind][0]}" for kind in SignalKind)
"""The endings of features that are plain values of a signal."""


def simple_scores(train: FleetTruth, truth: FleetTruth) -> dict[str, Array]:
    """The scores of each detector, shape (units, hours), NaN where a unit is not observed."""
    levels = [at for at, name in enumerate(train.fleet.names) if name.endswith(_LEVELS)]
    healthy = train.fleet.features[train.fleet.cause == 0][..., levels]
    seen = healthy[np.arange(healthy.shape[1]) <= train.fleet.last[train.fleet.cause == 0, None]]
    middle, spread = np.median(seen, axis=0), seen.std(axis=0)
    spread[spread == 0] = 1.0  # a signal that never changes
    observed = truth.fleet.observed
    far = (truth.fleet.features[..., levels] - middle) / spread
    total, sums = np.zeros(observed.shape), np.zeros((len(observed), len(levels)))
    for hour in range(observed.shape[1]):
        sums = np.maximum(0.0, sums + far[:, hour] - SLACK)
        total[:, hour] = np.log1p(sums).sum(axis=1)
    scores = {
        "thresholds": np.where(observed, far.max(axis=2), np.nan),
        "cumulative sums": np.where(observed, total, np.nan),
    }
    if AGE in truth.fleet.names:
        age = np.broadcast_to(truth.fleet.features[:, :1, truth.fleet.names.index(AGE)], observed.shape)
        scores[AGE] = np.where(observed, age, np.nan).astype(float)
    return scores
