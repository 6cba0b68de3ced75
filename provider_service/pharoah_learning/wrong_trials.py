"""Trials that finished, but computed other numbers than the same cell on other nodes: silent corruption.

Cells with one seed draw the same weights and the same data, so their losses agree up to rounding on devices of a kind.
Trials on CPUs are compared with each other, because torch's generator for CPUs is the same algorithm on all of them; no
fact of a node names the architecture of its processor. On GPUs, only trials on one model are compared: there the random
numbers that an operator draws depend on how many threads it starts, and that depends on the number of multiprocessors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from pharoah_learning.context_rule import values_of
from pharoah_learning.evidence import Trial
from pharoah_protocol.vocabulary import DeviceKind, Outcome

MIN_AGREEING_NODES = 2
"""Other nodes whose losses agree with each other, before a node that differs from them computes wrongly (ADR 21)."""
COMPARED_STEPS = 4
"""Rounding differences grow from step to step, so only the first steps are compared."""
ROUNDING = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Distance of 1 from the next larger number of a type (IEEE 754; bfloat16 has 8 bits of precision)."""

_GPU_FACT = "gpu"
"""The fact of a node that names the model of its GPU."""

_Losses = tuple[float, ...]


class _Point(NamedTuple):
    """What trials share that are compared with each other."""

    workload: str
    seed: int
    generator: str
    settings: tuple[tuple[str, object], ...]
    """In the order of their texts."""


def mark_wrong(trials: Sequence[Trial]) -> list[Trial]:
    """Trials whose losses are not those on which the other nodes agree get the outcome `wrong`.

    Losses agree where they differ by less than the square root of the rounding error of the type in which the cell
    computes, relative to their size: half of all digits, the usual bound for results of long computations (Gill, Murray
    and Wright 1981).
    """
    by_node: dict[_Point, dict[str, list[_Losses]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        if trial.outcome is Outcome.OK and trial.losses:
            by_node[_point(trial)][trial.node].append(trial.losses[:COMPARED_STEPS])
    agreed = {point: _Agreed(losses, _tolerance(point)) for point, losses in by_node.items()}
    return [
        replace(trial, outcome=Outcome.WRONG)
        if trial.outcome is Outcome.OK and trial.losses and agreed[_point(trial)].is_wrong(trial)
        else trial
        for trial in trials
    ]


class _Range(NamedTuple):
    """The losses on which nodes agree."""

    reference: float
    bound: float


class _Agreed:
    """What the other nodes of each node agree on, at one point. It is computed once for each node that is asked for."""

    def __init__(self, by_node: Mapping[str, Sequence[_Losses]], tolerance: float) -> None:
        self._typical = {node: _typical(losses) for node, losses in sorted(by_node.items())}
        self._tolerance = tolerance
        self._ranges: dict[str, list[_Range | None]] = {}
        """Node to the range of each step; None where the others do not agree."""

    def is_wrong(self, trial: Trial) -> bool:
        if trial.node not in self._ranges:
            self._ranges[trial.node] = self._ranges_without(trial.node)
        ranges = self._ranges[trial.node]
        return any(
            one is not None and abs(own - one.reference) > one.bound
            for own, one in zip(trial.losses, ranges, strict=False)
        )

    def _ranges_without(self, node: str) -> list[_Range | None]:
        others = [losses for other, losses in self._typical.items() if other != node]
        found: list[_Range | None] = []
        for step in range(COMPARED_STEPS):
            values = [losses[step] for losses in others if step < len(losses)]
            if not values:
                break
            reference = median(values)
            bound = self._tolerance * max(1.0, abs(reference))
            agreeing = sum(abs(value - reference) <= bound for value in values)
            agree = agreeing >= MIN_AGREEING_NODES and 2 * agreeing > len(values)
            found.append(_Range(reference, bound) if agree else None)
        return found


def _typical(losses: Sequence[_Losses]) -> _Losses:
    """The median of each step over the trials of one node."""
    return tuple(median(step) for step in zip(*losses, strict=False))


def _point(trial: Trial) -> _Point:
    return _Point(trial.workload, trial.seed, _generator(trial), tuple(sorted(trial.settings.items(), key=str)))


def _tolerance(point: _Point) -> float:
    dtype = str(dict(point.settings).get("dtype", "float32"))
    return float(ROUNDING.get(dtype, ROUNDING["bfloat16"]) ** 0.5)


def _generator(trial: Trial) -> str:
    """Trials for which this is equal draw the same numbers from one seed: it names the model of the GPU. A trial from
    before facts were kept names its device model, which is the GPU and the processor beside it."""
    if trial.device is DeviceKind.CPU:
        return ""
    return values_of(trial.facts).get(_GPU_FACT, trial.device_id)
