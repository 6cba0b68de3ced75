"""Comparison of a node with the healthy nodes of its fleet, and with its own past, in one micro-benchmark.

A run of a benchmark on a node is a set of repeats, in seconds or as throughput. Its logarithm is what is compared, so
nothing depends on the unit, and larger is slower. Seven numbers measure how far a run is from what is healthy:

* the area between its distribution and that of the fleet, where it is the slower one: the one-sided distance by which
  SuperBench compares nodes (Xiong and others, USENIX ATC 2024), here with the median over nodes as the reference;
* its mean, its slow quantile, and the mean of its slowest repeats, above those of the fleet;
* the same three above those of past runs of the same node.

The score of a run is the largest of the seven in robust standard deviations of healthy nodes. The threshold is learned
from healthy nodes, each against the others (split conformal prediction), so that it knows how much nodes differ. Tests
that pool the repeats of all nodes do not: they take 30 repeats of one node for 30 independent values. Because one score
has one threshold, a healthy node is called slower with a probability of at most the level over all seven together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log

import numpy as np
import scipy
from numpy.typing import NDArray

from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.models.robust_scores import (
    CUT,
    SKEWED_CUT,
    Spread,
    conformal_p,
    core_members,
    good_members,
    least_members,
    measure_spread,
    worst_z,
    z_scores,
)
from pharoah_learning.models.run_differences import above_fleet, above_past, centroids_of_others, in_order, summaries

LEVEL = 0.01
"""So many healthy nodes are called slower at most."""
REPEATS = 30
"""Repeats of a run that are compared. All runs are cut to the same number, because a quantile of few repeats varies
more than one of many. With 30, a node that is 2 % slower is found (`python -m evaluation validation`)."""
PAST_RUNS = 5
"""Past runs of a node that its newest run is compared with."""
MIN_PAST_RUNS = 3
"""Past runs with which a node can be compared with itself alone."""
MIN_SLOWDOWN = log(1.005)
"""A node is not called slower for less than this, however certain it is: nobody replaces a node for 0.5 %. Assumed."""
RESOLUTION = 5e-4
"""The least scale of a logarithm: clocks and caches make differences of 0.05 % that mean nothing. Assumed."""
_CUTS_FLEET = np.array([SKEWED_CUT, CUT, SKEWED_CUT, SKEWED_CUT])
_CUTS_PAST = _CUTS_FLEET[1:]
"""For area, mean, slow quantile and slowest repeats."""
MAX_LEFT_OUT = 0.2
"""When more nodes than this share are unlike the rest, the reference holds two kinds of nodes and is not used."""


class Quantity(StrEnum):
    """What the values of a run are."""

    SECONDS = "seconds"
    """Larger is worse."""
    THROUGHPUT = "throughput"
    """Work per time; smaller is worse."""


class Difference(StrEnum):
    """How a run differs from what is healthy."""

    NONE = "none"
    """It is as fast as healthy nodes, as far as this can be seen."""
    SLOWER = "slower"
    UNDECIDED = "undecided"
    """There is too little to compare with; the comparison states what is needed."""


class Basis(StrEnum):
    """What a run was compared with."""

    FLEET = "fleet"
    PAST = "past"
    """Past runs of the same node alone: there are too few other nodes."""
    FLEET_AND_PAST = "fleet and past"
    NOTHING = "nothing"


@dataclass(frozen=True)
class FleetCriterion:
    """What healthy nodes show in one benchmark."""

    repeats: int
    past_runs: int
    nodes: tuple[str, ...]
    """The nodes that it was learned from."""
    left_out: tuple[str, ...]
    """The nodes that were unlike the rest."""
    centroid: Array
    """The repeats of a typical run in rising order, as logarithms, shape (repeats,)."""
    spread: Spread
    """The middle and the scale of the four numbers against the fleet."""
    scores: Array
    """The scores of the healthy nodes against the fleet, in rising order."""
    past_spread: Spread
    """The middle and the scale of the three numbers against past runs."""
    scores_with_past: Array
    """The scores of the healthy nodes that have enough past runs, against both, in rising order."""

    @property
    def unusable(self) -> str:
        """Why nothing can be compared with these nodes; empty when it can."""
        total = len(self.nodes) + len(self.left_out)
        if len(self.left_out) > MAX_LEFT_OUT * total:
            return f"{len(self.left_out)} of {total} nodes are unlike the rest: compare nodes of one kind only"
        return ""


@dataclass(frozen=True)
class NodeComparison:
    """One run of a node, compared with what is healthy."""

    difference: Difference
    basis: Basis
    p_value: float
    """How probable a run as slow as this one is on a healthy node; NaN when nothing was compared."""
    slowdown_ratio: float
    """The worst of the differences as a ratio of times; 1.02 is 2 % slower. NaN when nothing was compared."""
    reason: str = ""
    """For `undecided`: what is needed."""


def log_slowness(values: Sequence[float] | Array, quantity: Quantity = Quantity.SECONDS) -> Array:
    """The logarithm of the seconds of each repeat; of a throughput, the negative logarithm. Larger is slower.

    Raises ValueError unless all values are finite and positive.
    """
    found = np.asarray(values, dtype=float)
    wrong = found[~(np.isfinite(found) & (found > 0))]
    if found.ndim != 1 or wrong.size:
        what = f"{wrong[0]} is not a positive finite number" if wrong.size else "a run is one list of numbers"
        raise ValueError(f"{quantity}: {what}")
    logarithms: Array = np.log(found)
    return logarithms if quantity is Quantity.SECONDS else -logarithms


def learn_criterion(
    runs: Mapping[str, Sequence[Array]], *, repeats: int = REPEATS, past_runs: int = PAST_RUNS
) -> FleetCriterion:
    """What healthy nodes show.

    `runs`: for each node its runs, oldest first, each as `log_slowness` gives it. The newest run of a node represents
    it, and the `past_runs` before are its past. Runs with fewer than `repeats` repeats are not used. Nodes that are
    unlike the rest are left out: up to 5 % of bad nodes do not change what is learned. Raises ValueError when no node
    has a run that can be used, for a repeat that is not finite, and for fewer than 1 repeat or 1 past run.
    """
    if repeats < 1 or past_runs < 1:
        raise ValueError(f"repeats and past_runs: at least 1 is needed, not {repeats} and {past_runs}")
    usable = {node: [in_order(run, repeats) for run in of if len(run) >= repeats] for node, of in runs.items()}
    names = np.array([node for node, of in usable.items() if of])
    if not names.size:
        raise ValueError(f"runs: no node has a run of {repeats} repeats")
    newest = np.array([usable[node][-1] for node in names])
    pasts = np.array([_against_own_past(usable[node], past_runs) for node in names])
    kept = _good_nodes(newest, pasts)
    good, pasts = newest[kept], pasts[kept]
    against = above_fleet(good, centroids_of_others(good))
    spread = measure_spread(against, RESOLUTION)
    scores = worst_z(against, spread)
    known = ~np.isnan(pasts[:, 0])
    past_spread = measure_spread(pasts, RESOLUTION)
    return FleetCriterion(
        repeats=repeats,
        past_runs=past_runs,
        nodes=tuple(names[kept].tolist()),
        left_out=tuple(names[~kept].tolist()),
        centroid=np.median(good, axis=0),
        spread=spread,
        scores=np.sort(scores),
        past_spread=past_spread,
        scores_with_past=np.sort(np.maximum(scores[known], worst_z(pasts[known], past_spread))),
    )


def compare_run(
    criterion: FleetCriterion, run: Array, past: Sequence[Array] = (), level: float = LEVEL
) -> NodeComparison:
    """One run of a node against the fleet and against its own past runs, oldest first; all as `log_slowness` gives.

    With too few nodes for this level, the run is compared with the past of the node alone, and without a past it is
    undecided. Raises ValueError for a level that is not between 0 and 1 and for a repeat that is not finite.
    """
    needed = least_members(level)
    if len(run) < criterion.repeats:
        return _leave_undecided(f"a run of {criterion.repeats} repeats is needed; this one has {len(run)}")
    now = in_order(run, criterion.repeats)
    usable = [in_order(one, criterion.repeats) for one in past if len(one) >= criterion.repeats]
    if criterion.unusable or len(criterion.scores) < needed:
        why = criterion.unusable or f"{needed} healthy nodes are needed; there are {len(criterion.scores)}"
        return _compare_with_past(now, usable, level, why)
    against = above_fleet(now, criterion.centroid)
    score, effect = float(worst_z(against, criterion.spread)), float(against.max())
    if len(usable) < criterion.past_runs or len(criterion.scores_with_past) < needed:
        return _decide(Basis.FLEET, conformal_p(criterion.scores, score), effect, level)
    own = above_past(now, np.array(usable[-criterion.past_runs :]))
    score = max(score, float(worst_z(own, criterion.past_spread)))
    p = conformal_p(criterion.scores_with_past, score)
    return _decide(Basis.FLEET_AND_PAST, p, max(effect, float(own.max())), level)


def compare_with_past(run: Array, past: Sequence[Array], level: float = LEVEL) -> NodeComparison:
    """One run of a node against its own past runs alone, oldest first, all cut to the repeats of the shortest one.

    The mean of a run is taken as normal: that of a healthy one lies in Student's prediction interval of the past ones,
    and so do the two numbers of its slow repeats. Each of the three is tested at a third of the level.
    """
    least_members(level)
    repeats = min([len(run), *(len(one) for one in past)], default=0)
    if repeats == 0:
        return _leave_undecided("a run has no repeats")
    return _compare_with_past(in_order(run, repeats), [in_order(one, repeats) for one in past], level, "")


def _compare_with_past(now: Array, past: Sequence[Array], level: float, why: str) -> NodeComparison:
    if len(past) < MIN_PAST_RUNS:
        needed = f"{MIN_PAST_RUNS} past runs of the node are needed; there are {len(past)}"
        return _leave_undecided(f"{why}, or {needed}" if why else needed)
    before = summaries(np.array(past))
    difference = summaries(now) - before.mean(axis=0)
    scale = np.maximum(before.std(axis=0, ddof=1), RESOLUTION) * np.sqrt(1 + 1 / len(past))
    p = min(1.0, before.shape[1] * float(scipy.stats.t.sf(difference / scale, len(past) - 1).min()))
    return _decide(Basis.PAST, p, float(difference.max()), level)


def _against_own_past(runs: Sequence[Array], past_runs: int) -> Array:
    """The newest run against the ones before; NaN when there are too few."""
    if len(runs) <= past_runs:
        return np.full(len(_CUTS_PAST), np.nan)
    return above_past(runs[-1], np.array(runs[-1 - past_runs : -1]))


def _decide(basis: Basis, p: float, effect: float, level: float) -> NodeComparison:
    slower = p <= level and effect >= MIN_SLOWDOWN
    return NodeComparison(Difference.SLOWER if slower else Difference.NONE, basis, p, exp(effect))


def _good_nodes(newest: Array, pasts: Array) -> NDArray[np.bool_]:
    """Which nodes are like the rest, by their newest runs and, where it is known, by what has changed since."""
    against = np.hstack([above_fleet(newest, np.median(newest, axis=0)), pasts])
    core = core_members(against, np.concatenate([_CUTS_FLEET, _CUTS_PAST]), RESOLUTION)
    against = np.hstack([above_fleet(newest, np.median(newest[core], axis=0)), pasts])
    z = np.nan_to_num(z_scores(against, measure_spread(against[core], RESOLUTION)), nan=-np.inf)
    return good_members(z.max(axis=1), core)


def _leave_undecided(reason: str) -> NodeComparison:
    return NodeComparison(Difference.UNDECIDED, Basis.NOTHING, float("nan"), float("nan"), reason)
