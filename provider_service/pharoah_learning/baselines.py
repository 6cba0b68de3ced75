"""Baselines: what each node shows on each micro-benchmark when it is healthy, idle and beside a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.models.cross_validation import typical_seconds
from pharoah_learning.release import BenchmarkBaseline


def learn_baselines(probes: Sequence[BenchmarkResult]) -> list[BenchmarkBaseline]:
    """One baseline per node, benchmark and load, from all rounds that measured something."""
    rounds: dict[tuple[str, str, bool], list[float]] = defaultdict(list)
    for probe in probes:
        if probe.seconds:
            rounds[probe.node, probe.benchmark, probe.beside_job].append(typical_seconds(probe.seconds))
    return [BenchmarkBaseline(*key, median(values)) for key, values in sorted(rounds.items())]
