"""Validation of a suspected node: consented micro-benchmarks on it and on a peer under like load."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pharoah_provider.campaigns import BENCHMARKS, PROBE_LIMIT_SECONDS, PROBE_REPEATS
from pharoah_provider.domain import Baseline, Node, Probe, Release, Run
from pharoah_provider.errors import NotReady
from pharoah_provider.fleet import Fleet
from pharoah_provider.models.compare import Comparison, compare, typical_seconds
from pharoah_provider.store import Store

log = logging.getLogger("pharoah.provider.monitoring")


class Validator:
    """Orders benchmarks and compares them with baselines that know the load."""

    def __init__(self, fleet: Fleet, store: Store, run_on: Callable[[str], Run | None]) -> None:
        """`run_on(node)` is the run on a node now, if there is one."""
        self._fleet, self._store, self._run_on = fleet, store, run_on

    async def validate(self, node: Node, run: Run, release: Release) -> list[Comparison]:
        """Comparisons for each benchmark that could be judged. Raises NotReady when the node cannot be measured."""
        limit = min(PROBE_LIMIT_SECONDS, run.limit_seconds)
        peer = self._peer(node)
        own, other = await asyncio.gather(
            self._probe(node, True, limit), self._probe_peer(peer, limit), return_exceptions=False
        )
        ratios = {p.benchmark: r for p in other if (r := _ratio(p, release)) is not None}
        comparisons = []
        for probe in own:
            baseline = baseline_of(release, probe.node, probe.benchmark, probe.beside_job)
            if baseline is not None and probe.seconds:
                now = typical_seconds(probe.seconds)
                peer_ratio = ratios.get(probe.benchmark, 1.0)
                comparisons.append(compare(probe.benchmark, now, baseline.seconds, baseline.error_ratio, peer_ratio))
        if not comparisons:
            raise NotReady(f"node {node.node}: no baseline beside a job; run a campaign there")
        return comparisons

    def _peer(self, node: Node) -> Node | None:
        """A peer that runs a consenting job, as this node does; else an idle one, judged by its idle baseline."""
        peers = self._fleet.peers(node)
        busy = [peer for peer in peers if (run := self._run_on(peer.node)) and run.beside_job]
        idle = [peer for peer in peers if self._run_on(peer.node) is None]
        return next(iter([*busy, *idle]), None)

    async def _probe_peer(self, peer: Node | None, limit: float) -> list[Probe]:
        if peer is None:
            return []
        try:
            return await self._probe(peer, self._run_on(peer.node) is not None, limit)
        except NotReady as error:
            log.info("no peer to compare with: %s", error)
            return []

    async def _probe(self, node: Node, beside_job: bool, limit: float) -> list[Probe]:
        probes = await self._fleet.probe(node.node, BENCHMARKS, PROBE_REPEATS, beside_job, limit)
        await self._store.append_probes(probes, "validation")
        return probes


def baseline_of(release: Release, node: str, benchmark: str, beside_job: bool) -> Baseline | None:
    """The node's own baseline under this load."""
    for baseline in release.baselines:
        if (baseline.node, baseline.benchmark, baseline.beside_job) == (node, benchmark, beside_job):
            return baseline
    return None


def _ratio(probe: Probe, release: Release) -> float | None:
    baseline = baseline_of(release, probe.node, probe.benchmark, probe.beside_job)
    return typical_seconds(probe.seconds) / baseline.seconds if baseline and probe.seconds else None
