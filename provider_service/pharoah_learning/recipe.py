"""The recipe: which signals to collect in production for which archetype, from what campaigns with faults have shown.

For each archetype and fault, every feature of a signal is compared between degraded runs and control runs of the same
archetype: its largest value before the failure, against its largest value in a run to which nothing was done. Runs
without a failure count to their end. Features are made so that larger is worse, and a feature that does not move before
failures is not worth its collection. The evidence of one node proves nothing (ADR 21).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from pharoah_learning.evidence import DegradedRun
from pharoah_learning.models.superiority import superiority
from pharoah_learning.recipe_item import RecipeItem
from pharoah_learning.signals import SIGNALS, features_over_time
from pharoah_protocol.vocabulary import NO_FAULT
from pharoah_protocol.windows import STEP_RATIO

FAILURE_RATIO, FAILURE_WINDOWS = 1.5, 4
"""A run has failed when its steps stay so many times as long as its own baseline for so many windows; or when its
process dies."""


class _Course(NamedTuple):
    """How the features of a run went, up to its failure."""

    seconds: list[float]
    values: dict[str, list[float]]
    failed: bool

    def peak(self, feature: str) -> float:
        return max(self.values[feature])

    def lead(self, feature: str, bound: float) -> float | None:
        """Seconds from the first value above a bound to the end; None where there is none."""
        first = next((at for at, value in enumerate(self.values[feature]) if value > bound), None)
        return None if first is None else self.seconds[-1] - self.seconds[first]


def learn_recipe(runs: Iterable[DegradedRun]) -> list[RecipeItem]:
    """The recipe from usable degraded runs (`usable_evidence`): by archetype and fault, the strongest signal first.

    An archetype without control runs, and runs whose archetype is not known, give nothing.
    """
    controls: dict[str, list[_Course]] = defaultdict(list)
    degraded: dict[tuple[str, str], list[tuple[str, _Course]]] = defaultdict(list)
    for run in runs:
        course = _course(run)
        if not run.archetype or course is None:
            continue
        if run.fault == NO_FAULT:
            controls[run.archetype].append(course)
        else:
            degraded[run.archetype, run.fault].append((run.node, course))
    found: list[RecipeItem] = []
    for (archetype, fault), courses in sorted(degraded.items()):
        if archetype in controls:
            items = _items(archetype, fault, courses, controls[archetype])
            found += sorted(items, key=lambda item: (-item.low, -item.lead_seconds, item.feature))
    return found


def _items(
    archetype: str, fault: str, degraded: Sequence[tuple[str, _Course]], controls: Sequence[_Course]
) -> list[RecipeItem]:
    courses = [course for _, course in degraded]
    items = []
    for signal in SIGNALS:
        for feature in signal.features:
            usual = [course.peak(feature.name) for course in controls]
            found = superiority(
                np.array([course.peak(feature.name) for course in courses]), np.array(usual, dtype=float)
            )
            leads = [lead for course in courses if (lead := course.lead(feature.name, max(usual))) is not None]
            items.append(
                RecipeItem(
                    archetype=archetype,
                    fault=fault,
                    signal=signal.name,
                    feature=feature.name,
                    effect=found.value,
                    low=found.low,
                    high=found.high,
                    lead_seconds=median(leads) if leads else 0.0,
                    runs=len(courses),
                    failed=sum(course.failed for course in courses),
                    controls=len(controls),
                    nodes=len({node for node, _ in degraded}),
                )
            )
    return items


def failure_index(run: DegradedRun) -> int | None:
    """Index of the window at which the run failed; None when it did not."""
    held = 0
    for at, window in enumerate(run.windows):
        held = held + 1 if window.values.get(STEP_RATIO, 1.0) >= FAILURE_RATIO else 0
        if held == FAILURE_WINDOWS:
            return at
    return len(run.windows) - 1 if run.died and run.windows else None


def _course(run: DegradedRun) -> _Course | None:
    """None for a run without a window before its failure."""
    failed_at = failure_index(run)
    windows = run.windows[:failed_at] if failed_at is not None else run.windows
    if not windows:
        return None
    known = list(features_over_time(windows))
    seconds = [window.at_seconds for window in run.windows[: len(windows) + (failed_at is not None)]]
    values = {name: [moment[name] for moment in known] for name in known[0]}
    return _Course(seconds, values, failed_at is not None)
