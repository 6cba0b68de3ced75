"""What the benchmarks show on healthy nodes, idle and beside the jobs that run there now.

Levels are measured beside the very job that runs now, early in its run: how much a benchmark suffers from a neighbour
depends on the neighbour more than on the node. Where there was no time for that, the campaign's baseline beside its own
job has to do, and counts as that much less certain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from pharoah_benchmarks.micro import MICRO_BENCHMARKS, MicroBenchmark
from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.models.cross_validation import BenchmarkLevel, spread, typical_seconds
from pharoah_learning.release import Release
from pharoah_provider.domain import Run

ROUNDS, MAX_ROUNDS = 3, 6
"""Probes beside a healthy job until its level counts as known: more when they differ more than noise explains."""
OTHER_JOB_ERROR = 0.1
IDLE_ERROR = 0.05
MIN_ERROR = 0.03
"""Error of a level, as a ratio: taken beside another job; taken on the idle node, where a campaign's two rounds of 6 %
noise leave 4 %; and taken beside this very job, at least."""


class _Measured(NamedTuple):
    """What a baseline was measured of."""

    node: str
    benchmark: str
    beside_job: bool


class NodeLevels:
    """Levels by run, and the baselines of the release in force."""

    def __init__(self) -> None:
        self._rounds: dict[bytes, dict[str, list[float]]] = {}
        """Run to what was measured beside it, by benchmark."""
        self._baselines: dict[_Measured, float] = {}
        """Seconds, of the campaigns of the release."""
        self._nodes: set[tuple[str, bool]] = set()
        """Nodes with a baseline, and whether it was taken beside a job."""
        self._by_sidecar: set[bytes] = set()
        """Runs beside which their own sidecars measure."""

    def use(self, release: Release) -> None:
        measured = [(_Measured(one.node, one.benchmark, one.beside_job), one.seconds) for one in release.baselines]
        self._baselines = dict(reversed(measured))  # of two equal ones the first one counts
        self._nodes = {(one.node, one.beside_job) for one in self._baselines}

    def set_measurer(self, run: Run, *, sidecar: bool) -> None:
        """Who measures beside a run from now on: its sidecar, or the agent of its node. They work at different
        priorities, so that a level of one says nothing about the times of the other, and is forgotten."""
        if sidecar is not (run.run_id in self._by_sidecar):
            self.forget(run.run_id)
        if sidecar:
            self._by_sidecar.add(run.run_id)

    def learn(self, run: Run, probes: Sequence[BenchmarkResult]) -> None:
        """A round of probes beside a run that looks healthy."""
        for probe in probes:
            if probe.seconds:
                rounds = self._rounds.setdefault(run.run_id, defaultdict(list))
                rounds[probe.benchmark].append(typical_seconds(probe.seconds))

    def is_known(self, run: Run, benchmarks: Sequence[MicroBenchmark]) -> bool:
        """Whether each of these was measured beside the run until its level is certain enough."""
        if run.run_id in self._by_sidecar:
            benchmarks = [benchmark for benchmark in benchmarks if benchmark.suits_guests]
        rounds = self._rounds.get(run.run_id, {})
        return all(_is_settled(benchmark, rounds.get(benchmark.name, [])) for benchmark in benchmarks)

    def is_known_idle(self, node: str) -> bool:
        """Whether a campaign has measured the node while it was idle."""
        return (node, False) in self._nodes

    def has_baseline(self, run: Run) -> bool:
        """Whether what is measured beside a run can be compared with a baseline of a campaign on its node."""
        return run.run_id not in self._by_sidecar and (run.node, True) in self._nodes

    def forget(self, run_id: bytes) -> None:
        self.learn_again(run_id)
        self._by_sidecar.discard(run_id)

    def learn_again(self, run_id: bytes) -> None:
        """What was measured beside a run does not hold any more."""
        self._rounds.pop(run_id, None)

    def find(self, node: str, run: Run | None, benchmark: str, *, own: bool = True) -> BenchmarkLevel | None:
        """The level on a node beside this run, or idle; None when nobody has measured it. Without `own`, only that of a
        campaign."""
        beside = self._beside(run, benchmark) if own else None
        if run is not None and run.run_id in self._by_sidecar:
            return beside  # baselines are those of agents
        candidates = [level for level in (beside, self._baseline(node, run, benchmark)) if level]
        return min(candidates, key=lambda level: level.error_ratio, default=None)

    def _beside(self, run: Run | None, benchmark: str) -> BenchmarkLevel | None:
        """What was measured beside this run: its fastest rounds. Time is only ever lost, so where rounds differ, the
        slow ones were disturbed, or the node has become slower meanwhile. Few rounds say little of how much they
        differ: then the noise of the benchmark stands in for it."""
        rounds = self._rounds.get(run.run_id, {}).get(benchmark, []) if run else []
        if not rounds or benchmark not in MICRO_BENCHMARKS.entries:
            return None
        assumed = MICRO_BENCHMARKS.entries[benchmark].noise.log_ratio_sd
        fastest = sorted(rounds)[:ROUNDS]
        deviation = spread(fastest) if len(rounds) >= ROUNDS else assumed
        return BenchmarkLevel(median(fastest), max(MIN_ERROR, deviation / len(fastest) ** 0.5))

    def _baseline(self, node: str, run: Run | None, benchmark: str) -> BenchmarkLevel | None:
        """What a campaign has measured, idle or beside its own job."""
        seconds = self._baselines.get(_Measured(node, benchmark, run is not None))
        return None if seconds is None else BenchmarkLevel(seconds, IDLE_ERROR if run is None else OTHER_JOB_ERROR)


def _is_settled(benchmark: MicroBenchmark, rounds: Sequence[float]) -> bool:
    steady = spread(rounds) <= 2 * benchmark.noise.log_ratio_sd
    return len(rounds) >= (ROUNDS if steady else MAX_ROUNDS)
