"""How probable the outcomes of reruns on one node are, when the node is healthy, transient, gray or persistent.

Each class is a distribution of failure rates over the workloads that were run again. The rate of an affected workload
has a Beta distribution, the same for all affected workloads of a node; the base rate of a workload is how often it
fails on other nodes. A rerun fails when the node or the base makes it fail. Healthy: no workload is affected. Transient
and persistent: all are, with low and with high rates. Gray: each is affected with the probability `AFFECTED_SHARE`, at
least one is, and at least one is not.

The integrals over rates are exact: the base rate alone gives a Beta-Binomial distribution, and the rates of affected
workloads are integrated by Gauss-Jacobi quadrature, which is exact for up to 63 reruns. Beside an affected workload the
base rate counts with its mean.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import scipy

from pharoah_learning.models.mantel_haenszel import Array


class BetaRate(NamedTuple):
    """A Beta distribution of a failure rate."""

    failures: float
    """The first parameter."""
    successes: float
    """The second parameter."""


BASE = BetaRate(1.0, 99.0)
"""The base rate before anything else is known: one failure in a hundred. Assumed."""
TRANSIENT = BetaRate(2.0, 6.0)
"""One rerun in four fails, between 5 and 50 % in most cases. Assumed."""
GRAY = BetaRate(4.0, 1.0)
"""Four of five reruns of an affected workload fail. Assumed."""
PERSISTENT = BetaRate(9.0, 1.0)
"""Nine of ten reruns fail. Assumed."""
AFFECTED_SHARE = 0.25
"""The share of workloads that a gray node is wrong for. Assumed."""
_NODES = 32


class Reruns(NamedTuple):
    """Outcomes of reruns and of the same work on other nodes; all arrays have the shape (workloads,)."""

    failures: Array
    runs: Array
    base_failures: Array
    """Failures on other nodes."""
    base_runs: Array
    """Runs on other nodes."""


class ClassLikelihoods(NamedTuple):
    """Logarithms of the probability of the outcomes, one for each class of a node."""

    healthy: float
    transient: float
    gray: float
    """Minus infinity when there is one workload only."""
    persistent: float


class GrayEvidence(NamedTuple):
    """What the outcomes say when the node is gray."""

    log_likelihood: float
    affected: Array
    """The probability that each workload is one that the node is wrong for, shape (workloads,)."""


class _BetaRates(NamedTuple):
    """The Beta distribution of the base rate of each workload; both have the shape (workloads,)."""

    failures: Array
    successes: Array


class _Rule(NamedTuple):
    rates: Array
    weights: Array


@cache
def _quadrature(rate: BetaRate) -> _Rule:
    """Points and weights, of the sum 1, that integrate polynomials over a Beta distribution."""
    points, weights = scipy.special.roots_jacobi(_NODES, rate.successes - 1, rate.failures - 1)
    return _Rule((1 + points) / 2, weights / weights.sum())


def class_likelihoods(reruns: Reruns) -> ClassLikelihoods:
    """The probability of the outcomes in each class, as logarithms."""
    base = _base_likelihood(reruns)
    return ClassLikelihoods(
        healthy=float(base.sum()),
        transient=_all_affected(reruns, TRANSIENT),
        gray=gray_evidence(reruns).log_likelihood,
        persistent=_all_affected(reruns, PERSISTENT),
    )


def gray_evidence(reruns: Reruns) -> GrayEvidence:
    """The probability of the outcomes on a gray node, and which workloads it is wrong for.

    With the likelihoods H of an affected and B of another workload, the sum over all sets of affected workloads is the
    product of s H + (1 - s) B over the workloads, without the sets that hold all of them and none.
    """
    count, share = len(reruns.runs), AFFECTED_SHARE
    if count < 2:
        return GrayEvidence(float("-inf"), np.zeros(count))
    rule, base = _quadrature(GRAY), _base_likelihood(reruns)
    scale = np.maximum(base, (hurt := _compute_affected_likelihood(reruns, rule.rates)).max(axis=0))
    affected, other = share * np.exp(hurt - scale), (1 - share) * np.exp(base - scale)
    mixed = affected + other
    all_of_them = affected.prod(axis=1)
    total = np.maximum(0.0, mixed.prod(axis=1) - all_of_them - other.prod())
    likelihood = float(rule.weights @ total)
    if likelihood <= 0:
        return GrayEvidence(float("-inf"), np.full(count, share))
    without = _products_of_others(mixed)
    with_it = rule.weights @ np.maximum(0.0, affected * without - all_of_them[:, None])
    possible = 1 - share**count - (1 - share) ** count
    return GrayEvidence(float(np.log(likelihood / possible) + scale.sum()), np.minimum(1.0, with_it / likelihood))


def _products_of_others(factors: Array) -> Array:
    """For each factor the product of all others of its row, of the same shape; no division, as a factor may be 0."""
    ones = np.ones((len(factors), 1))
    before: Array = np.hstack([ones, factors[:, :-1]]).cumprod(axis=1)
    after: Array = np.hstack([ones, factors[:, :0:-1]]).cumprod(axis=1)[:, ::-1]
    return before * after


def _base_parameters(reruns: Reruns) -> _BetaRates:
    failures = BASE.failures + reruns.base_failures
    return _BetaRates(failures, BASE.successes + reruns.base_runs - reruns.base_failures)


def _base_likelihood(reruns: Reruns) -> Array:
    """The Beta-Binomial log likelihood of each workload that is not affected, shape (workloads,)."""
    a, b = _base_parameters(reruns)
    found: Array = scipy.special.betaln(a + reruns.failures, b + reruns.runs - reruns.failures) - scipy.special.betaln(
        a, b
    )
    return found


def _compute_affected_likelihood(reruns: Reruns, rates: Array) -> Array:
    """The log likelihood of each workload, if it is affected, for each rate, shape (rates, workloads)."""
    a, b = _base_parameters(reruns)
    works = (1 - rates)[:, None] * (b / (a + b))
    found: Array = reruns.failures * np.log1p(-works) + (reruns.runs - reruns.failures) * np.log(works)
    return found


def _all_affected(reruns: Reruns, rate: BetaRate) -> float:
    rule = _quadrature(rate)
    found = _compute_affected_likelihood(reruns, rule.rates).sum(axis=1)
    return float(found.max() + np.log(rule.weights @ np.exp(found - found.max())))
