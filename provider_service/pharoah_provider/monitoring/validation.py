"""Validation of a suspected node: micro-benchmarks on it and on a peer under the same load.

Beside a job they need the tenant's consent. On an idle node they need the idle baseline of a campaign.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.models.cross_validation import Comparison, compare, typical_seconds
from pharoah_protocol.vocabulary import Purpose
from pharoah_provider.domain import BESIDE_JOB, Node, Run
from pharoah_provider.fleet import Fleet
from pharoah_provider.micro_benchmarks import benchmarks_of, measure
from pharoah_provider.monitoring.levels import NodeLevels
from pharoah_provider.storage.base import Storage
from pharoah_serving.errors import NotReady

log = logging.getLogger("pharoah.provider.monitoring")

DOUBT = math.log(1.4)
"""Beyond this a node is not taken for healthy while only another job's baseline speaks for it."""


class Validator:
    """Orders benchmarks and compares them with levels that know the load."""

    def __init__(
        self, fleet: Fleet, store: Storage, run_on: Callable[[str], Run | None], is_slow: Callable[[str], bool]
    ) -> None:
        """`run_on(node)` is the run on a node now, if there is one. A node that `is_slow`, by a confirmed incident, is
        no peer."""
        self._fleet, self._store, self._run_on, self._is_slow = fleet, store, run_on, is_slow
        self.levels = NodeLevels()

    async def learn(self, run: Run) -> None:
        """One round of probes beside a run that looks healthy. Raises NotReady when the node cannot be measured."""
        self.levels.learn(run, await self._probe(run.node, run, Purpose.LEVEL))

    def levels_known(self, run: Run) -> bool:
        """Whether the level of every micro-benchmark that suits the run's node was measured beside this run."""
        return self.levels.known(run, benchmarks_of(self._fleet, run.node, beside_job=True))

    async def validate(self, name: str, run: Run | None, *, learn: bool) -> list[Comparison]:
        """Comparisons for each benchmark that could be judged, beside a run or on the idle node.

        `learn`: the level beside this run may be taken from this validation. Raises NotReady when the node cannot be
        measured.
        """
        node = await self._store.nodes.node(name)
        if node is None:
            raise NotReady(f"node {name} is not known")
        own, ratios = await asyncio.gather(self._probe(name, run, Purpose.VALIDATION), self._peer_ratios(node, run))
        comparisons = []
        for probe in own:
            level = self.levels.of(name, run, probe.benchmark)
            benchmark = MICRO_BENCHMARKS.entries.get(probe.benchmark)  # absent: an agent measured what was not ordered
            if level is not None and probe.seconds and benchmark is not None:
                now, peer_ratio = typical_seconds(probe.seconds), ratios.get(probe.benchmark, 1.0)
                comparisons.append(compare(probe.benchmark, now, level, benchmark.noise.log_ratio_sd, peer_ratio))
        if run is not None and learn and not self.levels_known(run):
            # Suspected before its level was known: what does not look slow beyond the doubt of another job's baseline
            # becomes the level. Otherwise a run that is slow from its beginning would never get one.
            normal = {c.benchmark for c in comparisons if c.slowdown < DOUBT}
            self.levels.learn(run, [probe for probe in own if probe.benchmark in normal])
        if not comparisons:
            load = "beside a job" if run else "while it is idle"
            raise NotReady(f"node {name}: no baseline {load}; run a campaign there")
        return comparisons

    async def _peer_ratios(self, node: Node, own: Run | None) -> dict[str, float]:
        """By benchmark: how much slower than its own level a peer is now. Empty without a peer."""
        peer = self._peer(node, own)
        if peer is None:
            return {}
        run = self._run_on(peer.node)
        try:
            probes = await self._probe(peer.node, run, Purpose.VALIDATION)
        except NotReady as error:
            log.info("no peer to compare with: %s", error)
            return {}
        return {
            probe.benchmark: typical_seconds(probe.seconds) / level.seconds
            for probe in probes
            if probe.seconds and (level := self.levels.of(peer.node, run, probe.benchmark)) is not None
        }

    def _peer(self, node: Node, own: Run | None) -> Node | None:
        """A peer under the same load, if there is one: beside a consenting job, or idle; then any other."""
        peers = [peer for peer in self._fleet.peers(node) if not self._is_slow(peer.node)]
        busy = [peer for peer in peers if (run := self._run_on(peer.node)) and run.beside_job]
        idle = [peer for peer in peers if self._run_on(peer.node) is None and not self._fleet.busy(peer.node)]
        return next(iter([*busy, *idle] if own else [*idle, *busy]), None)

    async def _probe(self, node: str, run: Run | None, purpose: Purpose) -> list[BenchmarkResult]:
        probes = await measure(self._fleet, node, run is not None, run.limit_seconds if run else math.inf)
        await self._store.evidence.append_probes(probes, purpose)
        return probes


def described(comparison: Comparison, *, idle: bool) -> str:
    """One comparison, for people."""
    load = " while idle" if idle else BESIDE_JOB
    ratios = f"{comparison.own_ratio:.2f}x its baseline{load}, peer {comparison.peer_ratio:.2f}x"
    return f"{comparison.benchmark} {ratios}"
