"""Trials that finished, but much slower than the same cell on nodes of other contexts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import median, median_high
from typing import NamedTuple

from pharoah_learning.evidence import Trial
from pharoah_learning.opinions import MIN_NODES
from pharoah_protocol.vocabulary import Outcome

SLOW_RATIO = 1.5
"""A job is slow on a node when its steps take this many times as long as on nodes of other contexts, beyond what the
node does to all jobs."""

SLOW_SECONDS = 0.005
"""And when they take longer by this. Differences of shorter steps are those of whatever else a machine does meanwhile:
a step of one millisecond that takes two is nothing that a job would notice."""


def mark_slow(trials: Sequence[Trial]) -> list[Trial]:
    """Trials that finished, but much slower here than elsewhere, get the outcome `slow`.

    A node that slows all workloads by the same factor is not an incompatibility: each workload's ratio is taken
    relative to the median ratio of its node. A context is slow for a workload where two of its nodes are.
    """
    ratios = _step_ratios(trials)
    by_node: dict[_Place, list[float]] = defaultdict(list)
    for (_, place), ratio in ratios.items():
        by_node[place].append(ratio)
    general = {place: max(1.0, median(found)) for place, found in by_node.items()}
    slow: dict[tuple[tuple[object, ...], str], set[str]] = defaultdict(set)
    for (point, place), ratio in ratios.items():
        if ratio > SLOW_RATIO * general[place]:
            slow[point, place.context_id].add(place.node)
    return [
        replace(trial, outcome=Outcome.SLOW)
        if trial.outcome is Outcome.OK and _is_slow(trial, slow.get((_point(trial), trial.context_id), set()))
        else trial
        for trial in trials
    ]


def _is_slow(trial: Trial, slow_nodes: set[str]) -> bool:
    """Whether a trial ran on one of the slow nodes of its context, of which there are at least two."""
    return len(slow_nodes) >= MIN_NODES and trial.node in slow_nodes


class _Place(NamedTuple):
    """Where a trial ran."""

    context_id: str
    node: str


def _step_ratios(trials: Sequence[Trial]) -> dict[tuple[tuple[object, ...], _Place], float]:
    """Per workload with its settings and node: its step time over that on the nodes of other contexts.

    What counts of the node are the fastest steps of its trials: what is slow there is slow in every step, and other
    work on the machine is not. The reference is the upper median over at least two nodes elsewhere: one node that
    reports tiny times does not lower it. Differences below SLOW_SECONDS count as none.
    """
    steps: dict[tuple[object, ...], dict[_Place, list[_Steps]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        if trial.outcome is Outcome.OK and len(trial.step_seconds) > 1:
            place = _Place(context_id=trial.context_id, node=trial.node)
            later = trial.step_seconds[1:]
            steps[_point(trial)][place].append(_Steps(min(later), median(later)))
    ratios: dict[tuple[tuple[object, ...], _Place], float] = {}
    for point, by_place in steps.items():
        medians = {place: median(one.median for one in found) for place, found in by_place.items()}
        for place, found in by_place.items():
            elsewhere = [value for other, value in medians.items() if other.context_id != place.context_id]
            if len(elsewhere) >= MIN_NODES:
                own, usual = median(one.fastest for one in found), median_high(elsewhere)
                ratios[point, place] = own / usual if own - usual >= SLOW_SECONDS else min(1.0, own / usual)
    return ratios


class _Steps(NamedTuple):
    """Times of the steps of one trial, in seconds, without the first one."""

    fastest: float
    median: float


def _point(trial: Trial) -> tuple[object, ...]:
    return (trial.workload, *sorted(trial.settings.items(), key=str))
