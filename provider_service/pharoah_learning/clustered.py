"""Whether a pair that is called incompatible rests on one host: the finding must survive without any single cluster.

Observations name the clusters of their runs: hosts, submitters, sweeps of one day. Where they do, a pair is called only
when the clusters agree, is a suspect when it survives without any one of them, and is declined when it does not. Only
pairs that would be called or suspected are asked about, so clusters cost little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from scipy.special import expit

from pharoah_learning.models.mantel_haenszel import Array, Strata, p_values
from pharoah_learning.models.run_clusters import score_p_values
from pharoah_learning.observations import ArchetypeFit, Codes, Flags, Observations, Stratified, number_codes

LEVEL = 0.05
"""What is left after a cluster has been left out must still refute at this level that there is no association."""
MAX_CLUSTERS = 20
"""So many clusters are left out in turn, those with most failures of the pair and those with most other runs of the
archetype: the remaining ones hold fewer."""


class Support(NamedTuple):
    """What is left of a pair without any single cluster."""

    p: float
    """One-sided p of no association, of the kind of cluster that knows least; 0 where no clusters are known."""
    rests_on: str
    """The kind of cluster, such as `host`, of which one alone makes the finding; empty where none does."""


class ArchetypeRuns(NamedTuple):
    """The runs of one archetype, one entry for each."""

    in_context: Flags
    confounders: list[Codes]
    failed: Flags
    stratum: Codes
    clusters: dict[str, Codes]


def runs_of(seen: Observations, counted: Stratified, archetype: int) -> ArchetypeRuns:
    """The runs of one archetype, with numbers for the strata and clusters that they have."""
    own = np.flatnonzero(seen.archetype == archetype)
    return ArchetypeRuns(
        seen.in_context.take(own, axis=0),
        [codes[own] for codes in seen.confounders.values()],
        seen.failed[own],
        number_codes(counted.coarse[seen.finest[own]]),
        {name: number_codes(codes[own]) for name, codes in seen.clusters.items()},
    )


def failing_clusters(seen: Observations, archetype: int, context: int) -> int:
    """The clusters in which runs of the pair failed: the fewest of all kinds of clusters, 0 where none are known."""
    failing = np.flatnonzero(seen.failed & (seen.archetype == archetype))
    failing = failing[seen.in_context[failing, context]]
    return min((len(np.unique(codes[failing])) for codes in seen.clusters.values()), default=0)


def support(runs: ArchetypeRuns, context: int, no_comparison: Codes) -> Support:
    """What is left of a pair. Runs in the contexts `no_comparison` count only where they are in its own."""
    exposed = runs.in_context[:, context]
    kept = np.flatnonzero(exposed | ~runs.in_context[:, no_comparison].any(axis=1))
    exposed, failed, stratum = exposed[kept], runs.failed[kept], runs.stratum[kept]
    width = int(runs.stratum.max(initial=0)) + 1
    outcome = 2 * exposed + failed
    whole = np.bincount(outcome * width + stratum, minlength=4 * width).reshape(4, width)
    total = np.maximum(whole.sum(axis=0), 1)
    score = (exposed - (whole[2] + whole[3])[stratum] / total[stratum]) * (
        failed - (whole[1] + whole[3])[stratum] / total[stratum]
    )
    p, rests_on = 0.0, ""
    for name, codes in runs.clusters.items():
        cluster = codes[kept]
        p = max(p, float(score_p_values(np.bincount(cluster, score).astype(float))))
        largest = np.union1d(
            _largest(cluster[exposed & failed])[:MAX_CLUSTERS], _largest(cluster[~exposed])[:MAX_CLUSTERS]
        )
        if not rests_on and largest.size:
            number = np.minimum(np.searchsorted(largest, cluster), len(largest) - 1)
            among = np.flatnonzero(largest[number] == cluster)
            place = (number[among] * 4 + outcome[among]) * width + stratum[among]
            of_one = np.bincount(place, minlength=len(largest) * 4 * width).reshape(len(largest), 4, width)
            left = np.moveaxis(whole - of_one, 1, 0).astype(float)
            if p_values(Strata(left[3], left[2], left[1], left[0])).max() > LEVEL:
                rests_on = name
    return Support(p, rests_on)


def design_effects(runs: ArchetypeRuns, fit: ArchetypeFit, levels: Sequence[int]) -> Array:
    """Shape (contexts,): how many times larger the variance of the adjusted effect of each context is where clusters
    count and not runs, for the kind of cluster with the largest; at least 1 (the sandwich of Liang and Zeger 1986, and
    the design effect of Kish 1965)."""
    value, covariance = fit.fitted
    contexts, constant = len(fit.chosen), value[-1]
    ends = contexts + np.cumsum([0, *levels])
    log_odds = runs.in_context[:, fit.chosen].astype(np.float32) @ value[:contexts].astype(np.float32) + constant
    for codes, begin, end in zip(runs.confounders, ends[:-1], ends[1:], strict=True):
        log_odds += np.concatenate([[0.0], value[begin:end]])[codes]
    residual = runs.failed - expit(log_odds)
    of_runs = np.einsum("ci,ij,cj->c", fit.weights, covariance, fit.weights)
    effects = np.ones(runs.in_context.shape[1])
    for codes in runs.clusters.values():
        clusters = int(codes.max(initial=0)) + 1
        by_cluster = scipy.sparse.csr_matrix((residual, (codes, np.arange(len(codes)))), (clusters, len(codes)))
        scores = [np.asarray(by_cluster @ runs.in_context[:, fit.chosen].astype(float))]
        for column, highest in zip(runs.confounders, levels, strict=True):
            width = highest + 1
            summed = np.bincount(codes * width + column, residual, clusters * width).reshape(clusters, width)
            scores.append(summed[:, 1:])
        scores.append(np.bincount(codes, residual, clusters)[:, None])
        influence = np.concatenate(scores, axis=1) @ covariance @ fit.weights.T
        variance = (influence**2).sum(axis=0) * clusters / max(clusters - 1, 1)
        ratio = np.divide(variance, of_runs, out=np.ones_like(variance), where=of_runs > 0)
        effects = np.maximum(effects, ratio)
    return effects


def _largest(clusters: Codes) -> Codes:
    """The clusters that occur, those with most runs first."""
    runs = np.bincount(clusters)
    found = np.flatnonzero(runs)
    return found[np.argsort(-runs[found], kind="stable")]
