"""Simulated versions of software whose behaviour falls into planted clusters, measured with unequal noise.

The behaviour of a version has 12 quantities, in units of the noise of one run. The centres of the clusters are drawn
from a normal distribution with mean 0 and the standard deviation `separation` in each quantity: two centres are
`separation * sqrt(24)` apart on average (3.9 for 0.8), and the nearest two of twelve about half of that. A version is
in each cluster with equal probability, and behaves exactly as its centre. It is measured by the mean of its runs.

The number of runs is drawn from a logarithmic normal distribution with the median 12 and the standard deviation 1, so
that one version has two runs and another two hundred. The median was chosen once, so that the methods that
`docs/evaluation/learning.md` prints beside ours have the agreement that was published for them with other draws: for
1,000 versions, 12 clusters and separation 0.8, HDBSCAN .77 and Ward with BIC .95; for 200, 8 and 0.6, .59 and .90.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.merge_tree import Array, Behaviours, Labels

QUANTITIES = 12
MEDIAN_RUNS, RUNS_SPREAD = 12, 1.0


@dataclass(frozen=True)
class SimulatedVersions:
    """Measured versions, and the truth about them."""

    seen: Behaviours
    """Errors come from the spread of the runs around the means of their versions, pooled over all versions."""
    cluster: Labels
    """Shape (versions,)."""
    centre: Array
    """Shape (clusters, quantities)."""

    @property
    def oracle(self) -> Labels:
        """The nearest true centre of each version: the best that can be done with known centres."""
        return nearest(self.seen.mean, self.centre)


def simulate(versions: int, clusters: int, separation: float, rng: np.random.Generator) -> SimulatedVersions:
    """One draw."""
    centre = rng.normal(0, separation, (clusters, QUANTITIES))
    cluster = rng.integers(0, clusters, versions)
    return SimulatedVersions(measure(centre[cluster], rng), cluster, centre)


def measure(behaviour: Array, rng: np.random.Generator) -> Behaviours:
    """What runs show of versions with these behaviours, in the shape (versions, quantities)."""
    runs = np.maximum(1, np.round(np.exp(rng.normal(np.log(MEDIAN_RUNS), RUNS_SPREAD, len(behaviour)))))[:, None]
    mean = behaviour + rng.standard_normal(behaviour.shape) / np.sqrt(runs)
    degrees = max(1.0, float((runs - 1).sum()))
    noise = np.sqrt(rng.chisquare(degrees, behaviour.shape[1]) / degrees)
    return Behaviours(mean, noise / np.sqrt(runs))


def nearest(points: Array, centre: Array) -> NDArray[np.int64]:
    """The index of the nearest centre of each point."""
    found: NDArray[np.int64] = ((points[:, None] - centre) ** 2).sum(axis=2).argmin(axis=1)
    return found
