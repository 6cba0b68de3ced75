"""Baselines: what each node shows on each micro-benchmark when it is healthy, idle and beside a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.models.cross_validation import typical_seconds
from pharoah_learning.release import BenchmarkBaseline

NEWEST_ROUNDS = 6
"""The newest rounds of a node that make its baseline, those of three campaigns: parts of a node are replaced. Ours."""


def learn_baselines(probes: Sequence[BenchmarkResult]) -> list[BenchmarkBaseline]:
    """One baseline per node, benchmark and load, from its newest rounds that measured something."""
    rounds: dict[tuple[str, str, bool], list[float]] = defaultdict(list)
    for probe in sorted(probes, key=lambda probe: probe.ended_at):
        if probe.seconds:
            rounds[probe.node, probe.benchmark, probe.beside_job].append(typical_seconds(probe.seconds))
    return [BenchmarkBaseline(*key, median(values[-NEWEST_ROUNDS:])) for key, values in sorted(rounds.items())]
