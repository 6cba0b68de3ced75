"""The class of a node, from reruns of several workloads on it: healthy, transient, gray or persistent.

The classes are those of hardware faults in published fleets: persistent ones, gray ones that show for certain work
only, and transient ones that do not come back. One failure does not distinguish them, so work is run again on the node.
After each rerun Bayes' rule gives the probability of each class (`models.rerun_likelihoods`), and the workload that is
run next is the one whose outcome is expected to say most about the class (Lindley 1956; greedy, one rerun ahead).
Reruns end when a class is certain enough or when there were `MAX_RERUNS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.models.rerun_likelihoods import Reruns, class_likelihoods, gray_evidence
from pharoah_protocol.vocabulary import NodeClass

PRIORS: Mapping[NodeClass, float] = {
    NodeClass.HEALTHY: 0.5,
    NodeClass.TRANSIENT: 0.3,
    NodeClass.GRAY: 0.125,
    NodeClass.PERSISTENT: 0.075,
}
"""How often a node whose job failed has each class, before any rerun. All of them are assumed: half of the failures are
not the node's, and the others are transient, gray and persistent as 0.6 to 0.25 to 0.15."""
CERTAIN = 0.95
"""Reruns end when a class has this probability."""
MAX_RERUNS = 20
WRONG_FOR = 0.5
"""A gray node is wrong for a workload that is more probably affected than not."""
_CLASSES = tuple(PRIORS)
_LOG_PRIORS = np.log([PRIORS[one] for one in _CLASSES])


@dataclass(frozen=True, kw_only=True)
class RerunWorkload:
    """Work that can be run again on a node. Raises ValueError for impossible counts."""

    name: str
    """Such as the name of its archetype: what a gray node is wrong for is said in this name."""
    base_failures: int = 0
    """Failures of the same work on other nodes, so that work which fails everywhere does not speak against a node."""
    base_runs: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.base_failures <= self.base_runs:
            raise ValueError(f"workload {self.name!r}: {self.base_failures} failures in {self.base_runs} runs")


class Rerun(NamedTuple):
    """One rerun on the node."""

    workload: str
    failed: bool


@dataclass(frozen=True)
class NodeClassEstimate:
    """What the reruns say so far."""

    node_class: NodeClass
    """The most probable one."""
    posterior: Mapping[NodeClass, float]
    affected: Mapping[str, float]
    """For each workload, how probable it is that the node is wrong for it, if the node is gray."""
    reruns: int
    next_workload: str | None
    """What to run next; None when the reruns have ended."""

    @property
    def is_certain(self) -> bool:
        return self.posterior[self.node_class] >= CERTAIN

    @property
    def wrong_for(self) -> tuple[str, ...]:
        """The workloads that a gray node is to be avoided for; empty for another class, which knows no difference."""
        if self.node_class is not NodeClass.GRAY:
            return ()
        return tuple(name for name, share in self.affected.items() if share > WRONG_FOR)


class _Evidence(NamedTuple):
    """Counts for each workload; hashable, because many nodes have the same history."""

    failures: tuple[int, ...]
    runs: tuple[int, ...]
    base_failures: tuple[int, ...]
    base_runs: tuple[int, ...]

    def after(self, place: int, failed: bool) -> _Evidence:
        """The same with one more rerun."""
        return self._replace(
            failures=tuple(n + (failed and at == place) for at, n in enumerate(self.failures)),
            runs=tuple(n + (at == place) for at, n in enumerate(self.runs)),
        )

    def arrays(self) -> Reruns:
        return Reruns(*(np.array(one, dtype=float) for one in self))


def classify(workloads: Sequence[RerunWorkload], reruns: Sequence[Rerun]) -> NodeClassEstimate:
    """The class of a node after some reruns, in any order, and what to run next.

    The failure that raised the suspicion is no rerun: the priors are those of nodes on which something has failed. With
    a single workload a node cannot be seen to be gray. Raises ValueError when there is no workload, when two have one
    name, or when a rerun is of a workload that is not listed.
    """
    names = [one.name for one in workloads]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"workloads: different names are needed, not {names}")
    if unknown := {one.workload for one in reruns} - set(names):
        raise ValueError(f"reruns: {sorted(unknown)} is not among the workloads {names}")
    runs, failures = Counter(one.workload for one in reruns), Counter(one.workload for one in reruns if one.failed)
    evidence = _Evidence(
        tuple(failures[name] for name in names),
        tuple(runs[name] for name in names),
        tuple(one.base_failures for one in workloads),
        tuple(one.base_runs for one in workloads),
    )
    logs = np.array(_log_joint(evidence))
    posterior = _normalise(logs)
    best = int(posterior.argmax())
    ended = posterior[best] >= CERTAIN or len(reruns) >= MAX_RERUNS
    affected = gray_evidence(evidence.arrays()).affected.tolist()
    return NodeClassEstimate(
        node_class=_CLASSES[best],
        posterior=dict(zip(_CLASSES, posterior.tolist(), strict=True)),
        affected=dict(zip(names, affected, strict=True)),
        reruns=len(reruns),
        next_workload=None if ended else names[_most_informative(evidence)],
    )


@lru_cache(maxsize=1 << 16)
def _log_joint(evidence: _Evidence) -> tuple[float, ...]:
    """The logarithm of prior and likelihood of each class."""
    found = class_likelihoods(evidence.arrays())
    by_class = {
        NodeClass.HEALTHY: found.healthy,
        NodeClass.TRANSIENT: found.transient,
        NodeClass.GRAY: found.gray,
        NodeClass.PERSISTENT: found.persistent,
    }
    return tuple((_LOG_PRIORS + [by_class[one] for one in _CLASSES]).tolist())


def _normalise(logs: Array) -> Array:
    shares = np.exp(logs - logs.max())
    found: Array = shares / shares.sum()
    return found


@lru_cache(maxsize=1 << 14)
def _most_informative(evidence: _Evidence) -> int:
    """The workload whose next outcome leaves the least uncertainty about the class; of equal ones the least tried."""
    left = [_compute_expected_entropy(evidence, place) for place in range(len(evidence.runs))]
    return min(range(len(left)), key=lambda place: (round(left[place], 9), evidence.runs[place]))


def _compute_expected_entropy(evidence: _Evidence, place: int) -> float:
    """The entropy of the class after one more rerun of a workload, in nats, the mean over its outcomes."""
    outcomes = [np.array(_log_joint(evidence.after(place, failed))) for failed in (False, True)]
    now = np.logaddexp.reduce(np.array(_log_joint(evidence)))
    return float(
        sum(np.exp(np.logaddexp.reduce(logs) - now) * scipy.special.entr(_normalise(logs)).sum() for logs in outcomes)
    )
