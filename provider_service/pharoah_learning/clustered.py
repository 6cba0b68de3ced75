"""Whether a pair that is called incompatible rests on one host: the finding must survive without any single cluster.

Observations name the clusters of their runs: hosts, submitters, sweeps of one day. Where they do, a pair is called only
when the clusters agree, is a suspect when it survives without any one of them, and is declined when it does not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pharoah_learning.models.mantel_haenszel import Array, Strata, p_values
from pharoah_learning.models.run_clusters import score_p_values
from pharoah_learning.observations import Codes, Flags, Observations, Stratified

LEVEL = 0.05
"""What is left after a cluster has been left out must still refute at this level that there is no association."""
LARGEST_CLUSTERS = 20
"""So many clusters are left out in turn, those with most failures of the pair and those with most other runs of the
archetype: the remaining ones hold fewer."""


class Support(NamedTuple):
    """What is left of a pair without any single cluster."""

    clusters: int
    """The clusters in which runs of the pair failed: the fewest of all kinds of clusters."""
    rests_on: str
    """The kind of cluster, such as `host`, of which one alone makes the finding; empty where none does."""


def clustered_p_values(seen: Observations, counted: Stratified) -> Array:
    """Shape (archetypes, contexts): one-sided p of no association, of the kind of cluster that knows least.

    All are 0 where no clusters are known: then runs alone decide.
    """
    found = np.zeros((len(seen.archetypes), len(seen.contexts)))
    runs, failures = counted.counts.runs, counted.counts.failures
    if not seen.clusters:
        return found
    place = seen.archetype, counted.coarse[seen.finest]
    failure = seen.failed - (failures / np.maximum(runs, 1))[place]
    for codes in seen.clusters.values():
        width = int(codes.max(initial=0)) + 1
        own = seen.archetype * width + codes
        for c in range(len(seen.contexts)):
            mean = (counted.counts.exposed_runs[:, c] / np.maximum(runs, 1))[place]
            score = (seen.in_context[:, c] - mean) * failure
            scores = np.bincount(own, score, len(seen.archetypes) * width).astype(float)
            found[:, c] = np.maximum(found[:, c], score_p_values(scores.reshape(-1, width)))
    return found


def support(seen: Observations, counted: Stratified, archetype: int, context: int) -> Support:
    """What is left of one pair of an archetype and a context without any single cluster."""
    own = seen.archetype == archetype
    exposed, failed, stratum = seen.in_context[own, context], seen.failed[own], counted.coarse[seen.finest[own]]
    fewest, rests_on = len(seen), ""
    for name, codes in seen.clusters.items():
        cluster = codes[own]
        failing = _largest(cluster[exposed & failed])
        fewest = min(fewest, len(failing))
        largest = np.union1d(failing[:LARGEST_CLUSTERS], _largest(cluster[~exposed])[:LARGEST_CLUSTERS])
        left = [_p_without(cluster != one, exposed, failed, stratum) for one in largest]
        if not rests_on and max(left) > LEVEL:
            rests_on = name
    return Support(fewest if seen.clusters else 0, rests_on)


def _largest(clusters: Codes) -> Codes:
    """The clusters that occur, those with most runs first."""
    found, runs = np.unique(clusters, return_counts=True)
    return found[np.argsort(-runs, kind="stable")]


def _p_without(kept: Flags, exposed: Flags, failed: Flags, stratum: Codes) -> float:
    """One-sided p of no association among the runs that are kept."""
    codes = np.unique(stratum[kept], return_inverse=True)[1]
    width = int(codes.max(initial=0)) + 1

    def count(chosen: Flags) -> Array:
        return np.bincount(codes[chosen[kept]], minlength=width).astype(float)

    strata = Strata(
        count(exposed & failed), count(exposed & ~failed), count(~exposed & failed), count(~exposed & ~failed)
    )
    return float(p_values(strata))
