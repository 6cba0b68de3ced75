"""Validation of a suspected node: consented micro-benchmarks on it and on a peer under like load.

What they are compared with was measured beside the very job that runs now, early in its run: how much a benchmark
suffers from a neighbour depends on the neighbour more than on the node. Where there was no time for that, the
campaign's baseline beside its own job has to do, and counts as that much less certain.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median

from pharoah_benchmarks.micro import MicroBenchmark, micro_benchmarks
from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.models.cross_validation import (
    BenchmarkLevel,
    Comparison,
    compare,
    spread,
    typical_seconds,
)
from pharoah_learning.release import Release
from pharoah_protocol.vocabulary import Purpose
from pharoah_provider.domain import Node, Run
from pharoah_provider.fleet import Fleet
from pharoah_provider.micro_benchmarks import benchmarks_of, measure
from pharoah_provider.storage.base import Storage
from pharoah_serving.errors import NotReady

log = logging.getLogger("pharoah.provider.monitoring")

ROUNDS, MOST_ROUNDS = 3, 6
"""Probes beside a healthy job until its level counts as known: more when they differ more than noise explains."""
OTHER_JOB_ERROR = 0.1
LEAST_ERROR = 0.03
"""Error of a level, as a ratio: taken beside another job, and taken beside this one, at least."""
DOUBT = math.log(1.4)
"""Beyond this a node is not taken for healthy while only another job's baseline speaks for it."""


class NodeLevels:
    """What the benchmarks show on the nodes while they are healthy, beside the jobs that run there now."""

    def __init__(self) -> None:
        self._rounds: dict[tuple[bytes, str], list[float]] = defaultdict(list)
        self._release = Release(0)

    def use(self, release: Release) -> None:
        self._release = release

    def learn(self, run: Run, probes: Sequence[BenchmarkResult]) -> None:
        """A round of probes beside a run that looks healthy."""
        for probe in probes:
            if probe.seconds:
                self._rounds[run.run_id, probe.benchmark].append(typical_seconds(probe.seconds))

    def known(self, run: Run, benchmarks: Sequence[MicroBenchmark]) -> bool:
        """Whether each of these was measured beside the run until its level is certain enough."""
        return all(_settled(benchmark, self._rounds[run.run_id, benchmark.name]) for benchmark in benchmarks)

    def forget(self, run_id: bytes) -> None:
        for key in [key for key in self._rounds if key[0] == run_id]:
            del self._rounds[key]

    def of(self, node: str, run: Run | None, benchmark: str) -> BenchmarkLevel | None:
        """The level on a node beside this run, or idle; None when nobody has measured it."""
        rounds = self._rounds.get((run.run_id, benchmark), []) if run else []
        if len(rounds) >= ROUNDS:
            return BenchmarkLevel(median(rounds), max(LEAST_ERROR, spread(rounds) / len(rounds) ** 0.5))
        for baseline in self._release.baselines:
            if (baseline.node, baseline.benchmark, baseline.beside_job) == (node, benchmark, run is not None):
                return BenchmarkLevel(baseline.seconds, OTHER_JOB_ERROR)
        return None


def _settled(benchmark: MicroBenchmark, rounds: Sequence[float]) -> bool:
    quiet = spread(rounds) <= 2 * benchmark.noise.log_ratio_sd
    return len(rounds) >= (ROUNDS if quiet else MOST_ROUNDS)


class Validator:
    """Orders benchmarks and compares them with levels that know the load."""

    def __init__(self, fleet: Fleet, store: Storage, run_on: Callable[[str], Run | None]) -> None:
        """`run_on(node)` is the run on a node now, if there is one."""
        self._fleet, self._store, self._run_on = fleet, store, run_on
        self.levels = NodeLevels()

    async def learn(self, node: str, run: Run) -> None:
        """One round of probes beside a run that looks healthy. Raises NotReady when the node cannot be measured."""
        self.levels.learn(run, await self._probe(node, run, run.limit_seconds, Purpose.LEVEL))

    def levels_known(self, run: Run) -> bool:
        """Whether the level of every micro-benchmark that suits the run's node was measured beside this run."""
        return self.levels.known(run, benchmarks_of(self._fleet, run.node, beside_job=True))

    async def validate(self, node: Node, run: Run) -> list[Comparison]:
        """Comparisons for each benchmark that could be judged. Raises NotReady when the node cannot be measured."""
        limit = run.limit_seconds
        own, ratios = await asyncio.gather(
            self._probe(node.node, run, limit, Purpose.VALIDATION), self._peer_ratios(node, limit)
        )
        comparisons = []
        for probe in own:
            level = self.levels.of(node.node, run, probe.benchmark)
            benchmark = micro_benchmarks().get(probe.benchmark)  # absent: an agent measured what was not ordered
            if level is not None and probe.seconds and benchmark is not None:
                now, peer_ratio = typical_seconds(probe.seconds), ratios.get(probe.benchmark, 1.0)
                comparisons.append(compare(probe.benchmark, now, level, benchmark.noise.log_ratio_sd, peer_ratio))
        if not self.levels_known(run):
            # Suspected before its level was known: what does not look slow beyond the doubt of another job's baseline
            # becomes the level, or there would never be one.
            normal = {c.benchmark for c in comparisons if c.slowdown < DOUBT}
            self.levels.learn(run, [probe for probe in own if probe.benchmark in normal])
        if not comparisons:
            raise NotReady(f"node {node.node}: no baseline beside a job; run a campaign there")
        return comparisons

    async def _peer_ratios(self, node: Node, limit: float) -> dict[str, float]:
        """By benchmark: how much slower than its own level a peer is now. Empty without a peer."""
        peer = self._peer(node)
        if peer is None:
            return {}
        run = self._run_on(peer.node)
        try:
            probes = await self._probe(peer.node, run, limit, Purpose.VALIDATION)
        except NotReady as error:
            log.info("no peer to compare with: %s", error)
            return {}
        return {
            probe.benchmark: typical_seconds(probe.seconds) / level.seconds
            for probe in probes
            if probe.seconds and (level := self.levels.of(peer.node, run, probe.benchmark)) is not None
        }

    def _peer(self, node: Node) -> Node | None:
        """A peer that runs a consenting job, as this node does; else an idle one, judged by its idle baseline."""
        peers = self._fleet.peers(node)
        busy = [peer for peer in peers if (run := self._run_on(peer.node)) and run.beside_job]
        idle = [peer for peer in peers if self._run_on(peer.node) is None]
        return next(iter([*busy, *idle]), None)

    async def _probe(self, node: str, run: Run | None, limit: float, purpose: Purpose) -> list[BenchmarkResult]:
        probes = await measure(self._fleet, node, run is not None, limit)
        await self._store.evidence.append_probes(probes, purpose)
        return probes
