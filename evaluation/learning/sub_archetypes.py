"""Sub-archetypes in simulated versions: are planted clusters found, and are new versions placed?

`simulated_versions` states what separation means. The figure `subarchetype_ari` is the lowest mean agreement (adjusted
Rand index) over all cells of the table. Change points are looked for in series of versions with and without a step.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from evaluation.figures import Figures
from evaluation.learning.simpler_clusters import METHODS
from evaluation.learning.simulated_versions import QUANTITIES, simulate
from evaluation.learning.simulated_versions import measure as measured
from pharoah_learning.models.change_points import FALSE_RATE, change_points
from pharoah_learning.models.clusters import UNLIKE_FALSE_RATE, find_clusters, place
from pharoah_learning.models.merge_tree import Array, Behaviours, Labels
from pharoah_learning.models.rand_index import compute_adjusted_rand_index

VERSIONS, CLUSTERS, SEPARATIONS = (60, 200, 1000), (6, 8, 12), (0.8, 1.0)
DRAWS, QUICK_DRAWS = {60: 20, 200: 20, 1000: 6}, {60: 10, 200: 10, 1000: 2}
"""Draws of each cell, by the number of versions: the agreement of one draw varies less with more versions."""
MIN_ARI = 0.95
NEW_VERSIONS = 100
"""New versions of known clusters, and as many of a new one, in each draw."""
SERIES, QUICK_SERIES = 1_000, 100
LENGTHS, WIDTHS = (12, 50, 300), (1, 3, 12)
STEP_LENGTH, STEP_WITHIN = 300, 10
"""A step of one standard deviation in one quantity, in the middle of a series of this length, counts as found within so
many versions, as in published comparisons."""


@dataclass
class _New:
    """What became of new versions."""

    called_unlike: list[float] = field(default_factory=list)
    """The share of each draw, among new versions of the planted clusters that were found: those that have most of the
    versions of a found one. A planted cluster that was joined with a larger one is not known."""
    versions: int = 0
    placed: int = 0
    """In the cluster that holds most of the versions of their true one."""
    unlike: int = 0
    found_unlike: int = 0


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Agreement in each cell, what becomes of new versions, and change points."""
    rng = np.random.default_rng(arguments.seed)
    rows, lowest, new = [], 1.0, _New()
    for versions, clusters, separation in product(VERSIONS, CLUSTERS, SEPARATIONS):
        draws = (QUICK_DRAWS if arguments.quick else DRAWS)[versions]
        indices = np.array([_agreement(versions, clusters, separation, rng, new) for _ in range(draws)])
        means = indices.mean(axis=0)
        lowest = min(lowest, float(means[0]))
        rows.append([str(versions), str(clusters), f"{separation:g}", *(f"{value:.3f}" for value in means)])
    figures.add("subarchetype_ari", lowest, f">= {MIN_ARI:g}", lowest >= MIN_ARI)
    for at, name in enumerate((*METHODS, "oracle")):
        if at:
            key = name.lower().replace(",", "").replace(" ", "_").replace("-", "")
            figures.add(f"subarchetype_ari_{key}", min(float(row[3 + at]) for row in rows))
    _placed(figures, new)
    _change_points(figures, rng, QUICK_SERIES if arguments.quick else SERIES)
    figures.table(
        "Agreement with the planted clusters (mean adjusted Rand index); the oracle knows the true centres.",
        ["versions", "clusters", "separation", *METHODS, "oracle"],
        rows,
    )


def _agreement(versions: int, clusters: int, separation: float, rng: np.random.Generator, new: _New) -> list[float]:
    drawn = simulate(versions, clusters, separation, rng)
    _place_new(drawn.seen, drawn.cluster, drawn.centre, separation, rng, new)
    labels = [*(method(drawn.seen) for method in METHODS.values()), drawn.oracle]
    return [compute_adjusted_rand_index(drawn.cluster, label) for label in labels]


def _place_new(
    seen: Behaviours, cluster: Labels, centre: Array, separation: float, rng: np.random.Generator, new: _New
) -> None:
    """Place versions of the clusters that had some, and of one that nobody has seen."""
    found = find_clusters(seen)
    table = np.zeros((len(centre), len(found.centre)))
    np.add.at(table, (cluster, found.label), 1)
    home = table.argmax(axis=1)
    true = rng.choice(np.unique(cluster), NEW_VERSIONS)
    placed = [place(mean, error, found) for mean, error in zip(*measured(centre[true], rng), strict=True)]
    known = table.argmax(axis=0)[home[true]] == true
    new.called_unlike.append(
        float(np.mean([not one.is_known for one, is_known in zip(placed, known, strict=True) if is_known]))
    )
    new.versions += NEW_VERSIONS
    new.placed += sum(one.is_known and one.cluster == home[number] for one, number in zip(placed, true, strict=True))
    unseen = measured(rng.normal(0, separation, (NEW_VERSIONS, QUANTITIES)), rng)
    for mean, error in zip(*unseen, strict=True):
        new.unlike += 1
        new.found_unlike += not place(mean, error, found).is_known


def _placed(figures: Figures, new: _New) -> None:
    rate = float(np.mean(new.called_unlike))
    # Versions of one draw share the errors of its centres, so the noise is that of draws.
    allowed = UNLIKE_FALSE_RATE + 3 * float(np.std(new.called_unlike, ddof=1) / np.sqrt(len(new.called_unlike)))
    must = f"<= {allowed:.4f}: the stated rate, and 3 standard errors"
    holds = rate <= allowed
    figures.add("subarchetype_unlike_false_ratio", rate, must, holds, f"n={len(new.called_unlike)} draws")
    figures.ratio("subarchetype_new_placed_ratio", new.placed, new.versions)
    figures.ratio("subarchetype_unlike_found_ratio", new.found_unlike, new.unlike)


def _change_points(figures: Figures, rng: np.random.Generator, series: int) -> None:
    shapes = list(product(LENGTHS, WIDTHS))
    false = sum(bool(change_points(_series(*shape, rng))) for shape in shapes for _ in range(series // len(shapes)))
    figures.ratio("change_points_false_ratio", false, series // len(shapes) * len(shapes))
    figures.details["change_points_stated_false_ratio"] = FALSE_RATE
    found = by_oracle = 0
    for _ in range(series // 5):
        flat = _series(STEP_LENGTH, 1, rng, equal=True)
        step = flat.mean + (np.arange(STEP_LENGTH) >= STEP_LENGTH // 2)[:, None]
        points = change_points(Behaviours(step, flat.error))
        found += any(abs(point - STEP_LENGTH // 2) <= STEP_WITHIN for point in points)
        by_oracle += abs(_best_cut(step[:, 0]) - STEP_LENGTH // 2) <= STEP_WITHIN
    figures.ratio("change_points_found_ratio", found, series // 5)
    figures.ratio("change_points_found_ratio_oracle", by_oracle, series // 5)


def _series(length: int, width: int, rng: np.random.Generator, *, equal: bool = False) -> Behaviours:
    spread = 0.0 if equal else 0.5
    error = np.exp(rng.normal(0, spread, (length, 1))) * np.ones((length, width))
    return Behaviours(error * rng.standard_normal((length, width)), error)


def _best_cut(values: Array) -> int:
    """The most likely place of the one change that the oracle knows of, with the known size of the step."""
    gain = np.cumsum((values - 0.5)[::-1])[::-1]
    return int(gain.argmax())
