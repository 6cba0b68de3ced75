"""`python -m evaluation odd_rank`: is one slow rank of four or eight suspected, and is it cleared while it is slow?

Simulated are step times and the clock. Everything behind them is the code that runs: windows of each rank, reported
levels, the request and its decoding, the intake, the monitor with its counters, a DuckDB file, and validations by a
node that answers micro-benchmarks. Ranks do not wait for each other, as in asynchronous phases: the slow rank shows in
its own steps alone, which is the case that a counter for all ranks together could not see.

The noise of steps is that of real jobs: log-normal with 5 % (a restless job begins there, `pharoah_protocol.reports`),
one step in a hundred takes twice as long, and every minute all ranks pause for a checkpoint.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from evaluation.figures import Figures, timed
from pharoah_learning.release import BenchmarkBaseline, Release
from pharoah_protocol.incident_states import CLEARED, CONFIRMED, SUSPECTED
from pharoah_protocol.reports import RankWindows
from pharoah_provider.domain import Run, Subject, Transition
from pharoah_provider.monitoring.counters import CHANCE_RATIO, RunCounters
from tests.harness.monitored import BEGAN_AT, HEALTHY_SECONDS, MonitoredSite, monitored_site

RANKS = (4, 8)
SLOW_RATIO = 1.5
STEP_SECONDS, STEP_NOISE = 0.12, 0.05
LONG_STEP_CHANCE, LONG_STEP_RATIO = 0.01, 2.0
CHECKPOINT_EVERY_SECONDS, CHECKPOINT_SECONDS = 60.0, 1.5
RESIDENT_BYTES = 1 << 30
HEALTHY_FOR, SLOW_FOR, RECOVERED_FOR = 60, 60, 60
"""Seconds of the three parts of each run. The first must be longer than the windows of the baseline, twice if the job
turns out restless."""
SUSPECTED_WITHIN_SECONDS = 30.0
BENCHMARK_RATIO = 1.5
"""How much longer micro-benchmarks take on the slow node."""
CHANCE_HOURS = {1: 20, 8: 20, 64: 5}
"""Ranks of a healthy job to hours that are simulated second by second."""


@dataclass
class SimulatedRank:
    """One rank: its steps, and the windows that its sidecar makes of them."""

    chance: random.Random
    windows: RankWindows = field(default_factory=RankWindows)
    _at: float = 0.0

    def run_until(self, seconds: float, ratio: float) -> None:
        """Steps until then (seconds since the launch), each `ratio` times as long as in health."""
        durations = []
        while self._at < seconds:
            took = STEP_SECONDS * ratio * self.chance.lognormvariate(0.0, STEP_NOISE)
            if self.chance.random() < LONG_STEP_CHANCE:
                took *= LONG_STEP_RATIO
            if self._at // CHECKPOINT_EVERY_SECONDS != (self._at + took) // CHECKPOINT_EVERY_SECONDS:
                took += CHECKPOINT_SECONDS
            self._at += took
            durations.append(int(took * 1e9))
        self.windows.add(durations, RESIDENT_BYTES)


@dataclass
class SimulatedJob:
    """A job on a node of its own; one of its ranks becomes slow."""

    run: Run
    ranks: list[SimulatedRank]
    odd: int

    async def second(self, site: MonitoredSite, seconds: float, ratio: float) -> None:
        for number, rank in enumerate(self.ranks):
            rank.run_until(seconds, ratio if number == self.odd else 1.0)
        await site.report(self.run, [rank.windows.now for rank in self.ranks])


def run(arguments: argparse.Namespace) -> int:
    figures = Figures("odd_rank")
    timed("one slow rank of several", lambda: measure(figures, arguments.quick, arguments.seed))
    return figures.finish(arguments)


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Runs of 4 and of 8 ranks at the same time, each on a node of its own; then healthy jobs of 1, 8 and 64 ranks."""
    jobs = 10 if quick else 25
    with tempfile.TemporaryDirectory() as folder:
        histories = asyncio.run(_histories(Path(folder), jobs, seed))
    slow_from, slow_until = BEGAN_AT + HEALTHY_FOR, BEGAN_AT + HEALTHY_FOR + SLOW_FOR
    suspected, cleared_while_slow, recovered, delays, early = 0, 0, 0, list[float](), 0
    for changes in histories:
        early += any(change.changed_at <= slow_from for change in changes)
        found = [c.changed_at - slow_from for c in changes if c.state is SUSPECTED]
        delay = next((at for at in found if at > 0), float("inf"))
        suspected += delay <= SUSPECTED_WITHIN_SECONDS
        delays.append(delay)
        ends = [c.changed_at for c in changes if c.state is CLEARED]
        cleared_while_slow += sum(slow_from < at <= slow_until for at in ends)
        recovered += any(at > slow_until for at in ends)
    figures.ratio("odd_rank_suspected_ratio", suspected, len(histories), 0.95)
    figures.add("odd_rank_suspected_p50_seconds", median(delays))
    confirmed = sum(any(c.state is CONFIRMED for c in changes) for changes in histories)
    figures.ratio("odd_rank_confirmed_ratio", confirmed, len(histories), 0.95)  # else none could be cleared too early
    figures.add("cleared_while_slow", cleared_while_slow, f"0 of {len(histories)}", cleared_while_slow == 0)
    figures.ratio("cleared_after_recovery_ratio", recovered, len(histories))
    figures.rate("odd_rank_suspected_early_per_job_hour", early, len(histories) * HEALTHY_FOR / 3600)
    by_one_rank = 0.0
    for ranks, hours in CHANCE_HOURS.items():
        rate = chance_suspicions(ranks, hours, seed) / hours
        by_one_rank = by_one_rank or rate
        figures.add(
            f"chance_suspicions_per_hour_{ranks}_ranks", rate, "<= that of 1 rank", rate <= by_one_rank, f"{hours} h"
        )


def chance_suspicions(ranks: int, hours: int, seed: int) -> int:
    """How often a healthy job becomes raised when each second of each rank is risky by chance, independently."""
    chance, counters, raised = random.Random(seed), RunCounters(ranks), 0
    for _ in range(3600 * hours):
        before = counters.raised
        for rank in range(ranks):
            counters.second(rank, chance.random() < CHANCE_RATIO)
        raised += counters.raised and not before
    return raised


async def _histories(folder: Path, jobs: int, seed: int) -> list[list[Transition]]:
    """What the incident of each job's node has become, from the launch to the end."""
    names = [f"n{number}" for number in range(jobs * len(RANKS))]
    baselines = [
        BenchmarkBaseline(name, benchmark, beside_job, HEALTHY_SECONDS)
        for name in names
        for benchmark in ("gemm", "memory")
        for beside_job in (True, False)
    ]
    async with monitored_site(folder, Release(1, baselines=tuple(baselines))) as site:
        simulated = [await _job(site, name, RANKS[at % len(RANKS)], seed, at) for at, name in enumerate(names)]
        for second in range(1, HEALTHY_FOR + SLOW_FOR + RECOVERED_FOR + 1):
            slow = HEALTHY_FOR < second <= HEALTHY_FOR + SLOW_FOR
            site.seconds.update(dict.fromkeys(names, HEALTHY_SECONDS * (BENCHMARK_RATIO if slow else 1.0)))
            await site.passes(1.0)
            ratio = SLOW_RATIO if slow else 1.0
            await asyncio.gather(*(job.second(site, float(second), ratio) for job in simulated))
            await site.validated()
        return [await site.storage.incidents.changes(Subject.node(name), 0.0) for name in names]


async def _job(site: MonitoredSite, node: str, ranks: int, seed: int, number: int) -> SimulatedJob:
    await site.add_node(node, number, f"alone={node}")  # all nodes become slow at once: no peer could speak for one
    chance = random.Random(f"{seed}/{number}")
    simulated: Sequence[SimulatedRank] = [SimulatedRank(random.Random(chance.random())) for _ in range(ranks)]
    return SimulatedJob(await site.join(node, ranks), list(simulated), odd=chance.randrange(ranks))
