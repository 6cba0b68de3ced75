"""The model of degraded runs: what the windows of a run look like after something went wrong.

Campaigns degrade runs on purpose, so it is known of each window whether a fault had begun. A logistic regression learns
how the features of such windows differ from those of others: its labels are causes, and no thresholds of the features
(docs/adr/0058). A high score only makes a suspicion, which micro-benchmarks then confirm or refute.

One node proves nothing (ADR 21): in the fit every node weighs the same, however many runs and windows it has. And
whatever a node reports, a run whose steps stay 1.5 times as long as its baseline is risky, and a run within 15 % of its
baseline, without a trend and without growth, is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log
from statistics import median_low
from typing import NamedTuple

import numpy as np

from pharoah_learning.evidence import DegradedRun
from pharoah_learning.models import logistic
from pharoah_learning.release import FALLBACK_SLOWDOWN, DegradationModel
from pharoah_learning.signals import feature_names, features_over_time
from pharoah_protocol.vocabulary import NO_FAULT

RISKY_SLOWDOWN = log(1.5)
"""Steps that take so much longer than the run's own baseline are risky, whatever was learned."""
MIN_DEGRADED_RUNS = 4
COEFFICIENT_SPREAD = 10.0
"""Standard deviation that coefficients have before anything was seen: a feature is a log ratio, and steps that take
twice as long then change the odds by a factor of a thousand. It also keeps a fit finite where the features separate
degraded windows from healthy ones completely."""
MARGIN_SLOWDOWN = 0.05
"""The threshold is the highest score of a healthy run plus that of steps that take 5 % longer."""
_SLOWDOWN = "slowdown"
"""The feature that the bounds of the threshold are about."""


class FittedDegradation(NamedTuple):
    """A model, and how its fit went."""

    model: DegradationModel
    note: str
    """One line for people."""


class _Windows(NamedTuple):
    """What is fitted: a row for each window."""

    features: np.ndarray
    degraded: np.ndarray
    """1 after a fault had begun, else 0."""
    weights: np.ndarray
    degraded_runs: int
    """Runs with at least one window after a fault had begun."""


def fit_degradation(runs: Sequence[DegradedRun]) -> FittedDegradation:
    """Fit the model. A threshold on the slowdown takes its place where that says more."""
    windows = _windows([run for run in runs if run.windows])
    counted = (len(runs), windows.degraded_runs)
    if windows.degraded_runs < MIN_DEGRADED_RUNS or windows.degraded.all():
        return _threshold_only(f"{windows.degraded_runs} degraded runs are too few, or nothing was healthy", *counted)
    coefficients = _fit(windows)
    if coefficients[_SLOWDOWN] <= 0:
        return _threshold_only("slowdowns do not count in the fit", *counted)
    threshold = _threshold(coefficients, [run for run in runs if run.fault == NO_FAULT and run.windows])
    shown = ", ".join(f"{name} {value:+.2f}" for name, value in coefficients.items())
    note = (
        f"degradation: {len(runs)} runs, {windows.degraded_runs} degraded; log odds ratios {shown}; "
        f"threshold {threshold:.2f}"
    )
    return FittedDegradation(DegradationModel(coefficients, threshold, *counted), note)


def _threshold_only(why: str, runs: int, degraded: int) -> FittedDegradation:
    model = DegradationModel.threshold_only(runs, degraded)
    return FittedDegradation(model, f"degradation: {why}; plain slowdown threshold")


def _windows(runs: Sequence[DegradedRun]) -> _Windows:
    """All windows of runs that have some; all nodes weigh the same, and together as much as there are windows."""
    of_node = Counter[str]()
    for run in runs:
        of_node[run.node] += len(run.windows)
    total, degraded_runs = of_node.total(), 0
    rows, degraded, weights = [], [], []
    for run in runs:
        after = [run.fault != NO_FAULT and window.at_seconds > run.onset_seconds for window in run.windows]
        degraded_runs += any(after)
        degraded += after
        rows += [list(known.values()) for known in features_over_time(run.windows)]
        weights += [total / (len(of_node) * of_node[run.node])] * len(run.windows)
    shape = (len(rows), len(feature_names()))
    return _Windows(np.array(rows).reshape(shape), np.array(degraded, dtype=float), np.array(weights), degraded_runs)


def _fit(windows: _Windows) -> dict[str, float]:
    """Log odds ratios by feature.

    Every feature is made so that larger is worse. With few runs one can come out negative by chance, and would then
    excuse a node that gets worse: it is left out and the rest fitted again.
    """
    names = feature_names()
    kept = list(range(len(names)))
    found = np.zeros(len(names))
    while kept:
        columns = np.column_stack([np.ones(len(windows.weights)), windows.features[:, kept]])
        penalty = np.array([0.0, *[0.5 / COEFFICIENT_SPREAD**2] * len(kept)])
        failures = windows.degraded * windows.weights
        values = logistic.fit(columns, failures, penalty, windows.weights).value[1:]
        if (values >= 0).all():
            found[kept] = values
            break
        kept.pop(int(values.argmin()))
    return dict(zip(names, found.tolist(), strict=True))


def _threshold(coefficients: dict[str, float], healthy: Sequence[DegradedRun]) -> float:
    """Above the score of all healthy runs of a node, as conformal prediction does (Vovk, Gammerman and Shafer 2005):
    the lower median over nodes. It lies between the scores of a steady slowdown of 15 % and of one of 50 %.
    """
    lowest, highest = (coefficients[_SLOWDOWN] * slowdown for slowdown in (FALLBACK_SLOWDOWN, RISKY_SLOWDOWN))
    model = DegradationModel(coefficients, lowest, 0, 0)
    peaks: dict[str, float] = {}
    for run in healthy:
        scores = [model.score(known) for known in features_over_time(run.windows)]
        peaks[run.node] = max(peaks.get(run.node, lowest), _compute_sustained_peak(scores))
    seen = median_low(peaks.values()) + coefficients[_SLOWDOWN] * MARGIN_SLOWDOWN if peaks else lowest
    return min(max(lowest, seen), highest)


def _compute_sustained_peak(scores: Sequence[float]) -> float:
    """Highest score that two of three windows in a row reach: what the monitor would act on."""
    if len(scores) < 3:
        return sorted(scores)[-2] if len(scores) == 2 else scores[0]
    return max(sorted(scores[i : i + 3])[1] for i in range(len(scores) - 2))
