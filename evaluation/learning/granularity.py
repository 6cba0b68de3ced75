"""Failure rates of versions: shrinkage beside every fixed level, by how far the estimates are from the truth."""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy

from evaluation.figures import Figures
from pharoah_learning.models.shrinkage import shrunk_rates

Array = NDArray[np.float64]
FAMILIES, ARCHETYPES, VERSIONS = 4, 24, 240
BASE_RATIO, FAMILY_SPREAD, ARCHETYPE_SPREAD, VERSION_SPREAD = 0.05, 0.3, 0.5, 0.5
"""The usual failure rate, and standard deviations of what each level adds to its log odds."""
RUNS_PER_VERSION = (10, 50, 500)
DRAWS, QUICK_DRAWS = 40, 8


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """The Kullback-Leibler divergence of the estimates from the true rates, in thousandths of a nat per run."""
    rng = np.random.default_rng(arguments.seed)
    rows = []
    for runs in RUNS_PER_VERSION:
        draws = [_divergences(runs, rng) for _ in range(QUICK_DRAWS if arguments.quick else DRAWS)]
        means = {name: float(np.mean([draw[name] for draw in draws])) for name in draws[0]}
        best_fixed = min(value for name, value in means.items() if name != "shrinkage")
        own = means["shrinkage"]
        figures.add(f"backoff_excess_kl_{runs}", own, f"< {best_fixed:.3g}, the best fixed level", own < best_fixed)
        rows.append([str(runs), *(f"{value:.2f}" for value in means.values())])
    figures.table(
        "Divergence of estimated failure rates from the true ones, in thousandths of a nat per run.",
        ["runs of each version", "shrinkage", "version", "archetype", "family", "all"],
        rows,
    )


def _divergences(runs: int, rng: np.random.Generator) -> dict[str, float]:
    family_of = rng.integers(0, FAMILIES, ARCHETYPES)
    archetype = rng.integers(0, ARCHETYPES, VERSIONS)
    family = family_of[archetype]
    true = expit(
        np.log(BASE_RATIO / (1 - BASE_RATIO))
        + rng.normal(0, FAMILY_SPREAD, FAMILIES)[family]
        + rng.normal(0, ARCHETYPE_SPREAD, ARCHETYPES)[archetype]
        + rng.normal(0, VERSION_SPREAD, VERSIONS)
    )
    counts = rng.poisson(runs, VERSIONS).clip(1).astype(float)
    failures = rng.binomial(counts.astype(int), true).astype(float)
    estimates = {
        "shrinkage": shrunk_rates(failures, counts, archetype, family).rate,
        "version": (failures + 0.5) / (counts + 1),
        "archetype": _pooled(failures, counts, archetype),
        "family": _pooled(failures, counts, family),
        "all": _pooled(failures, counts, np.zeros(VERSIONS, dtype=np.int64)),
    }
    return {name: 1000 * _divergence(true, estimate) for name, estimate in estimates.items()}


def _pooled(failures: Array, runs: Array, group: NDArray[np.int64]) -> Array:
    pooled: Array = ((np.bincount(group, failures) + 0.5) / (np.bincount(group, runs) + 1))[group]
    return pooled


def _divergence(true: Array, estimate: Array) -> float:
    return float((xlogy(true, true / estimate) + xlogy(1 - true, (1 - true) / (1 - estimate))).mean())
