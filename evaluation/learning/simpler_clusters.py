"""Simpler ways to cluster versions, which are measured beside ours on the same draws."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from warnings import catch_warnings

import numpy as np
from scipy.cluster.hierarchy import fcluster, ward
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist

from evaluation.learning.simulated_versions import nearest
from pharoah_learning.models.clusters import find_clusters
from pharoah_learning.models.merge_tree import Array, Behaviours, Labels

MAX_CLUSTERS = 24
"""Numbers of clusters that the simpler methods try."""


def ward_bic(seen: Behaviours) -> Labels:
    """Ward's tree, cut where BIC with the known noise of each version is least."""
    return _cut_by_bic(seen, seen.weight)


def ward_plain_bic(seen: Behaviours) -> Labels:
    """Ward's tree, cut where BIC is least for one noise that is estimated from the clusters themselves."""
    return _cut_by_bic(seen, None)


def _cut_by_bic(seen: Behaviours, weight: Array | None) -> Labels:
    tree, (count, quantities) = ward(seen.mean), seen.mean.shape
    scored = []
    for clusters in range(1, min(MAX_CLUSTERS, count) + 1):
        label = np.unique(fcluster(tree, clusters, "maxclust"), return_inverse=True)[1]
        scatter = _scatter(seen.mean, np.ones_like(seen.mean) if weight is None else weight, label)
        fit = scatter if weight is not None else count * quantities * np.log(scatter / (count * quantities))
        scored.append((fit + clusters * quantities * np.log(count), label))
    return min(scored, key=lambda one: one[0])[1].astype(np.int64)


def _scatter(mean: Array, weight: Array, label: Labels) -> float:
    total, whole = (np.zeros((int(label.max()) + 1, mean.shape[1])) for _ in range(2))
    np.add.at(whole, label, weight)
    np.add.at(total, label, weight * mean)
    return max(float((weight * (mean - (total / whole)[label]) ** 2).sum()), 1e-12)


def kmeans_silhouette(seen: Behaviours) -> Labels:
    """K-means with the number of clusters that has the largest mean silhouette (Rousseeuw 1987)."""
    distance = cdist(seen.mean, seen.mean)
    with catch_warnings(action="ignore"):  # k-means may leave a cluster empty, which is its result
        tried = [
            kmeans2(seen.mean, clusters, minit="++", seed=1)[1].astype(np.int64)
            for clusters in range(2, min(MAX_CLUSTERS, len(seen.mean) - 1) + 1)
        ]
    return max(tried, key=lambda label: _silhouette(distance, label))


def _silhouette(distance: Array, label: Labels) -> float:
    _, code = np.unique(label, return_inverse=True)
    member = np.eye(int(code.max()) + 1)[code]
    sizes, to_each = member.sum(axis=0), distance @ member
    everyone = np.arange(len(code))
    own = to_each[everyone, code] / np.maximum(sizes[code] - 1, 1)
    to_each = to_each / sizes
    to_each[everyone, code] = np.inf
    other = to_each.min(axis=1)
    return float(np.where(sizes[code] > 1, (other - own) / np.maximum(own, other), 0.0).mean())


def hdbscan(seen: Behaviours) -> Labels:
    """HDBSCAN with at least five versions in a cluster. What it leaves out is one further cluster."""
    found = import_module("sklearn.cluster").HDBSCAN(min_cluster_size=5, copy=True).fit_predict(seen.mean)
    return np.asarray(found, dtype=np.int64)


def hdbscan_nearest(seen: Behaviours) -> Labels:
    """HDBSCAN, and then the nearest of its centres for every version."""
    label = hdbscan(seen)
    kept = [seen.mean[label == cluster].mean(axis=0) for cluster in range(int(label.max()) + 1)]
    return nearest(seen.mean, np.array(kept)) if kept else label


METHODS: dict[str, Callable[[Behaviours], Labels]] = {
    "this method": lambda seen: find_clusters(seen).label,
    "Ward, BIC with noise": ward_bic,
    "Ward, plain BIC": ward_plain_bic,
    "k-means, silhouette": kmeans_silhouette,
    **({"HDBSCAN": hdbscan, "HDBSCAN, nearest": hdbscan_nearest} if find_spec("sklearn") else {}),
}
"""Name to method; scikit-learn is no dependency, so its methods are measured where it is installed."""
