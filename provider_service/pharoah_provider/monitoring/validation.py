"""Validation of a suspected node: micro-benchmarks on it, and on a peer under the same load once it looks slow.

Beside a job they need the agreement of every run on the host. On an idle node they need the idle baseline of a
campaign, and an agent that sees the node idle.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.models.cross_validation import Comparison, compare, evidence, typical_seconds
from pharoah_protocol.vocabulary import Purpose
from pharoah_provider.domain import BESIDE_JOB, Found, Node, Run
from pharoah_provider.fleet import Fleet
from pharoah_provider.micro_benchmarks import benchmarks_of
from pharoah_provider.monitoring.levels import NodeLevels
from pharoah_provider.monitoring.orders import Cause, Orders, Round
from pharoah_provider.storage.base import Storage
from pharoah_serving.errors import NotReady

log = logging.getLogger("pharoah.provider.monitoring")

DOUBT = math.log(1.4)
"""Beyond this a node is not taken for healthy while only another job's baseline speaks for it."""
LOOKS_SLOW_LOG_ODDS = 0.5
"""Evidence of one round from which on it looks slow, so that a peer is measured as well. With the noise that the
benchmarks state, a healthy node reaches it in a fifth of its rounds, and a copy that is 1.2 times slower in nine of ten
(both follow from the formula of `cross_validation.evidence` and the normal distribution)."""


@dataclass(frozen=True)
class Question:
    """What a validation is about."""

    organisation: str
    """Whose run has raised the suspicion; empty when that is not known any more."""
    node: str
    run: Run | None
    """The run beside which the node is measured; None for an idle node."""
    own: bool
    """Whether the level that was measured beside the run counts: not for an incident that is earlier than the run,
    which may have come to a node that was slow already. True for an idle node."""
    learn: bool
    """Whether the level beside this run may be taken from the validation."""
    with_peer: bool
    """Whether a peer is measured once the node looks slow."""
    looks_slow: bool
    """Whether earlier validations speak against the node."""


class Validator:
    """Orders benchmarks and compares them with levels that know the load."""

    def __init__(
        self,
        fleet: Fleet,
        store: Storage,
        orders: Orders,
        run_on: Callable[[str], Run | None],
        is_slow: Callable[[str], bool],
        is_suspected: Callable[[str], bool],
    ) -> None:
        """`run_on(node)` is the run on a node now, if there is one. A node that `is_slow`, by a confirmed incident, is
        no peer, and one that `is_suspected`, by an open incident, only where there is no other."""
        self._fleet, self._store, self._orders = fleet, store, orders
        self._run_on, self._is_slow, self._is_suspected = run_on, is_slow, is_suspected
        self._peers_in_use: set[str] = set()
        """Nodes that are measured as peers now."""
        self.levels = NodeLevels()

    async def learn(self, run: Run) -> None:
        """One round of probes beside a run that looks healthy. Raises NotReady when the node cannot be measured."""
        async with self._orders.round(Cause(run.organisation, run.node, Purpose.LEVEL)) as this:
            self.levels.learn(run, await self._probe(this, run.node, run))

    def levels_known(self, run: Run) -> bool:
        """Whether the level of every micro-benchmark that suits the run's node was measured beside this run."""
        return self.levels.is_known(run, benchmarks_of(self._fleet, run.node, beside_job=True))

    def is_connected(self, node: str) -> bool:
        """Whether the agent of a node can be asked at all."""
        return self._fleet.is_connected(node)

    async def validate(self, question: Question) -> list[Comparison]:
        """Comparisons for each benchmark that could be judged, beside a run or on the idle node.

        The node is measured alone first, so that a suspicion without a reason costs nobody else anything. When it looks
        slow, it is measured again at the same time as a peer. Raises NotReady when the node cannot be measured.
        """
        node = await self._store.nodes.node(question.node)
        if node is None:
            raise NotReady(f"node {question.node} is not known")
        cause = Cause(question.organisation, node.node, Purpose.VALIDATION)
        async with self._orders.round(cause, looks_slow=question.looks_slow) as this:
            comparisons = await self._rounds(this, node, question)
            if comparisons and question.own:
                this.found = Found.SLOW if looks_slow(comparisons) else Found.HEALTHY
        if not comparisons:
            load = "beside a job" if question.run else "while it is idle"
            raise NotReady(f"node {node.node}: no baseline {load}; run a campaign there")
        return comparisons

    async def _rounds(self, this: Round, node: Node, question: Question) -> list[Comparison]:
        run = question.run
        own: list[BenchmarkResult] = []
        comparisons: list[Comparison] = []
        if not (this.looks_slow and question.with_peer):
            own = await self._probe(this, node.node, run)
            comparisons = self._compare(node.node, question, own, {})
            this.looks_slow |= looks_slow(comparisons)
        peer = self._free_peer(node, run) if this.looks_slow and question.with_peer else None
        if peer is not None or not own:
            try:
                measured = await self._both(this, node, run, peer)
            except NotReady as error:
                if not comparisons:
                    raise
                log.info("node %s is compared with its own level alone: %s", node.node, error)
            else:
                own, comparisons = measured.own, self._compare(node.node, question, measured.own, measured.peer_ratios)
        if run is not None and question.learn and not self.levels_known(run):
            # Suspected before its level was known: what does not look slow beyond the doubt of another job's baseline
            # becomes the level. Otherwise a run that is slow from its beginning would never get one.
            normal = {c.benchmark for c in comparisons if c.slowdown < DOUBT}
            self.levels.learn(run, [probe for probe in own if probe.benchmark in normal])
        return comparisons

    async def _both(self, this: Round, node: Node, run: Run | None, peer: Node | None) -> _Measured:
        """The node and its peer at the same time: what disturbs both of them is no evidence."""
        in_use = {peer.node} if peer else set[str]()
        self._peers_in_use |= in_use
        try:
            async with asyncio.TaskGroup() as group:  # the order to the peer ends when the node cannot be measured
                own = group.create_task(self._probe(this, node.node, run))
                ratios = group.create_task(self._peer_ratios(this, peer))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            self._peers_in_use -= in_use
        return _Measured(own.result(), ratios.result())

    async def _peer_ratios(self, this: Round, peer: Node | None) -> dict[str, float]:
        """By benchmark: how much slower than its own level a peer is now. Empty without a peer."""
        if peer is None:
            return {}
        run = self._run_on(peer.node)
        try:
            probes = await self._probe(this, peer.node, run)
        except NotReady as error:
            log.info("no peer to compare with: %s", error)
            return {}
        return {
            probe.benchmark: typical_seconds(probe.seconds) / level.seconds
            for probe in probes
            if probe.seconds and (level := self.levels.find(peer.node, run, probe.benchmark)) is not None
        }

    def _free_peer(self, node: Node, own: Run | None) -> Node | None:
        """A peer that nobody suspects, if there is one, and under the same load: beside a job whose host has agreed, or
        idle; then any other. Of several, the one that may be measured for longest, so that nodes that are slow at once
        do not all want the same one."""
        peers = [peer for peer in self._fleet.peers(node) if not self._is_slow(peer.node)]
        usable = [peer for peer in peers if self._orders.may_use(peer.node, self._run_on(peer.node))]
        seconds = {
            peer.node: self._orders.peer_seconds(peer.node) for peer in usable if peer.node not in self._peers_in_use
        }

        def worse(peer: Node) -> list[float]:
            has_other_load = bool(self._run_on(peer.node)) is not bool(own)
            return [self._is_suspected(peer.node), has_other_load, -seconds[peer.node]]

        return min((peer for peer in usable if seconds.get(peer.node)), key=worse, default=None)

    def _compare(
        self, node: str, question: Question, own: Sequence[BenchmarkResult], peer_ratios: Mapping[str, float]
    ) -> list[Comparison]:
        comparisons = []
        for probe in own:
            level = self.levels.find(node, question.run, probe.benchmark, own=question.own)
            benchmark = MICRO_BENCHMARKS.entries.get(probe.benchmark)  # absent: an agent measured what was not ordered
            if level is not None and probe.seconds and benchmark is not None:
                now, peer_ratio = typical_seconds(probe.seconds), peer_ratios.get(probe.benchmark, 1.0)
                comparisons.append(compare(probe.benchmark, now, level, benchmark.noise.log_ratio_sd, peer_ratio))
        return comparisons

    async def _probe(self, this: Round, node: str, run: Run | None) -> list[BenchmarkResult]:
        probes = await this.measure(node, run)
        await self._store.evidence.append_probes(probes, this.cause.purpose)
        return probes


@dataclass(frozen=True)
class _Measured:
    """A node, and a peer at the same time."""

    own: list[BenchmarkResult]
    peer_ratios: dict[str, float]


def looks_slow(comparisons: Sequence[Comparison]) -> bool:
    """Whether one round speaks against a node."""
    return any(evidence([comparison]) > LOOKS_SLOW_LOG_ODDS for comparison in comparisons)


def describe(comparison: Comparison, *, idle: bool) -> str:
    """One comparison, for people."""
    load = " while idle" if idle else BESIDE_JOB
    ratios = f"{comparison.own_ratio:.2f}x its baseline{load}, peer {comparison.peer_ratio:.2f}x"
    return f"{comparison.benchmark} {ratios}"
