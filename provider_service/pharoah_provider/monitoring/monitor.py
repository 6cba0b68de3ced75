"""The monitor: reports move the incidents of nodes, suspicions are validated, and what is validated is reported.

It joins four parts: the `Scorer` turns signals into risk, `RunCounters` turn risk into suspicion, the `Validator`
measures, and the `Notifier` brings the result to runs, agents and offers. Everything that matters is in the store, so
a restart does not confirm anything twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pharoah_learning.release import Release
from pharoah_protocol.incident_states import SUSPECTED, IncidentState
from pharoah_protocol.vocabulary import EndState
from pharoah_provider.clock import Clock
from pharoah_provider.domain import IncidentKind, Report, Resource, Run, Transition
from pharoah_provider.fleet import Fleet
from pharoah_provider.monitoring.counters import RunCounters
from pharoah_provider.monitoring.incidents import LONGEST_IDLE_PAUSE_SECONDS, Incident
from pharoah_provider.monitoring.notifier import Notifier
from pharoah_provider.monitoring.scorer import NOT_SCORED, Scorer
from pharoah_provider.monitoring.validation import Validator, described
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_provider.storage.base import Storage
from pharoah_serving.errors import ProviderError
from pharoah_serving.metrics import Metrics

log = logging.getLogger("pharoah.provider.monitoring")

SETTLE_SECONDS = 120.0
"""How long a run is left alone before micro-benchmarks are tried beside it: its own baseline is not known yet."""
SILENCE_SECONDS = 60.0
"""A run that has not reported for so long does not count as running: its sidecar retries at least every 18 seconds."""
LOST_SECONDS = 180.0
"""A run that has not reported for so long is lost. A sidecar that lives reports once a second and, while the provider
does not answer, retries after at most 15 s times 1.2 (jitter): it would have tried ten times. A run that is declared
lost by mistake joins again as a new attempt, so the price of an error is a line in a listing."""
REPORT_SECONDS = 1.0
"""How often a sidecar reports: it hears of a benchmark's end that much later than of its last steps."""
TICK_SECONDS = 1.0
"""How often silent runs and idle nodes with open incidents are looked at."""


@dataclass
class WatchedRun:
    """One active run, as the monitor follows it."""

    run: Run
    counters: RunCounters
    began_at: float
    heard_at: float
    """Seconds of the steady clock: when it joined, and when it last reported."""


@dataclass(frozen=True)
class Probing:
    """The validation, or measurement of a level, that goes on on a node."""

    task: asyncio.Task[None]
    run: Run | None
    """The run beside which it goes on; None on an idle node."""


class ScoredWindows(NamedTuple):
    """The risks of some windows, in their order."""

    masked: list[bool]
    """Whether a micro-benchmark ran during the window."""
    risks: list[float]
    """The log risk; NOT_SCORED for a masked window."""


class Monitor:
    """Owns the incidents of all nodes and the tasks that validate them; `close` ends the tasks."""

    def __init__(
        self,
        store: Storage,
        fleet: Fleet,
        metrics: Metrics,
        settle_seconds: float = SETTLE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._runs, self._stored_incidents, self._fleet, self._metrics = store.runs, store.incidents, fleet, metrics
        self._settle_seconds, self._clock = settle_seconds, clock or Clock()
        self._scorer = Scorer()
        self._validator = Validator(fleet, store, self.run_on, self._is_slow)
        self._notifier = Notifier(fleet, metrics)
        self._watched: dict[bytes, WatchedRun] = {}
        self._incidents: dict[str, Incident] = {}
        self._probing: dict[str, Probing] = {}
        self._background = OwnedTasks()

    async def restore(self) -> None:
        """After a restart: go on with the open incidents and the runs that had not ended."""
        open_incidents = await self._stored_incidents.open_incidents()
        for change in open_incidents:
            self._incidents[change.resource.name] = Incident.restored(change)
        self._notifier.restore(open_incidents)
        for run in await self._runs.active_runs():
            missed = await self._stored_incidents.changes(Resource.node(run.node), run.joined_at)
            self._watch(run, missed)

    def use(self, release: Release) -> None:
        """Score with this release and compare with its baselines from now on."""
        self._validator.levels.use(release)
        self._scorer.use(release)

    def watch(self, run: Run) -> None:
        """A new attempt of a run: it starts with clean windows, on whichever node it is now."""
        self._validator.levels.forget(run.run_id)
        self._scorer.forget(run.run_id)
        self._watch(run)

    def _watch(self, run: Run, missed: Sequence[Transition] = ()) -> None:
        now = self._clock.steady()
        self._stop_probing(run.node, None)  # the node is no longer idle
        incident = self._incident(run.node)
        counters = RunCounters(run.ranks, raised=not incident.quiet and incident.raised_by == run.run_id)
        self._watched[run.run_id] = WatchedRun(run, counters, began_at=now, heard_at=now)
        self._notifier.subscribe(run, missed)
        self._metrics.sessions_active.set(len(self._watched))

    def unwatch(self, run_id: bytes) -> None:
        """The run is over. An incident that it raised stays with its node, until it is validated."""
        if watched := self._watched.pop(run_id, None):
            self._stop_probing(watched.run.node, watched.run)
        self._notifier.unsubscribe(run_id)
        self._validator.levels.forget(run_id)
        self._scorer.forget(run_id)
        self._metrics.sessions_active.set(len(self._watched))

    def drain(self) -> None:
        """End the streams of alerts, before a restart."""
        self._notifier.drain()

    async def close(self) -> None:
        """End every validation that goes on."""
        await self._background.close()

    async def keep_watch(self) -> None:
        """`tick` once a second, until it is cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                await self.tick()
            except ProviderError as error:
                log.warning("the monitor could not look at its runs and nodes: %s", error)

    async def tick(self) -> None:
        """End runs that are lost; validate and expire incidents that no report moves on."""
        now = self._clock.steady()
        for watched in [w for w in self._watched.values() if now - w.heard_at >= LOST_SECONDS]:
            await self._lose(watched)
        for node, incident in list(self._incidents.items()):
            if not incident.quiet:
                await self._look_at(node, incident)

    def watches(self, run: Run) -> bool:
        """Whether this attempt goes on."""
        watched = self._watched.get(run.run_id)
        return watched is not None and watched.run.attempt == run.attempt

    def run_on(self, node: str) -> Run | None:
        """The run on a node now."""
        return next((run for run in self._alive_on(node)), None)

    def measures(self, node: str) -> bool:
        """Whether micro-benchmarks run on a node, or did a moment ago."""
        now = self._clock.wall()
        return self._fleet.probed(node, now - REPORT_SECONDS, now)

    def score(self, run: Run, reports: Sequence[Report]) -> ScoredWindows:
        """Score the windows of a run and remember them."""
        if watched := self._watched.get(run.run_id):
            watched.heard_at = self._clock.steady()
        masked = [self._fleet.probed(run.node, r.ended_at - r.span_seconds, r.ended_at) for r in reports]
        risks = [
            NOT_SCORED if hidden else self._scorer.score(run.run_id, report)
            for report, hidden in zip(reports, masked, strict=True)
        ]
        return ScoredWindows(masked=masked, risks=risks)

    async def react(self, run: Run, reports: Sequence[Report], masked: Sequence[bool], risks: Sequence[float]) -> None:
        """Move the incident of the run's node on; call it after the reports are committed."""
        watched = self._watched.get(run.run_id)
        if watched is None:
            return
        incident = self._incident(run.node)
        for report, hidden, score in zip(reports, masked, risks, strict=True):
            if hidden:
                continue
            change = None
            if watched.counters.second(report.rank, self._scorer.risky(score)):
                change = incident.suspect(report.ended_at - report.span_seconds, run.run_id, report.step_ratio)
            elif incident.raised_by == run.run_id and self._all_clean(run.node):
                change = incident.calmed()
            if change:
                ratio = report.step_ratio if change.is_reported else incident.step_ratio
                await self._transition(incident, change, ratio)
        self._probe_if_wanted(watched, incident)

    def alerts(self, run_id: bytes) -> AsyncIterator[Transition]:
        """What a run hears of its node: confirmed and cleared incidents, until it ends."""
        return self._notifier.alerts(run_id)

    # runs and nodes

    def _incident(self, node: str) -> Incident:
        return self._incidents.setdefault(node, Incident(Resource.node(node)))

    def _is_slow(self, node: str) -> bool:
        return self._incident(node).confirmed

    def _watched_on(self, node: str) -> list[WatchedRun]:
        return [watched for watched in self._watched.values() if watched.run.node == node]

    def _alive_on(self, node: str) -> list[Run]:
        now = self._clock.steady()
        return [w.run for w in self._watched_on(node) if now - w.heard_at < SILENCE_SECONDS]

    def _all_clean(self, node: str) -> bool:
        """Whether no rank of any run on the node is raised."""
        return not any(watched.counters.raised for watched in self._watched_on(node))

    async def _lose(self, watched: WatchedRun) -> None:
        """A run that has gone silent ends. When the agent of its node has gone as well, the node is suspected."""
        run, silent = watched.run, self._clock.steady() - watched.heard_at
        log.info("run on %s is lost: no report for %.0f s", run.node, silent)
        await self._runs.end_run(run, EndState.LOST, self._clock.wall())
        self.unwatch(run.run_id)
        incident = self._incident(run.node)
        if self._fleet.is_connected(run.node):
            return
        if change := incident.suspect(self._clock.wall() - silent, run.run_id, kind=IncidentKind.LOST):
            incident.text = f"no report for {silent:.0f} s, and the agent is not connected"
            await self._transition(incident, change, 1.0)

    # validation

    def _probe_if_wanted(self, watched: WatchedRun, incident: Incident) -> None:
        """Validate the suspicion that this run has raised; while there is none, learn what the benchmarks show beside
        its job."""
        run = watched.run
        if run.node in self._probing or not self._all_consent(run.node):
            return
        now = self._clock.steady()
        if incident.quiet:
            settled = now - watched.began_at >= self._settle_seconds and watched.counters.calm
            if settled and not self._validator.levels_known(run):
                self._start_probing(run.node, run, self._learn(run))
        elif incident.raised_by == run.run_id and watched.counters.risky and incident.wants_validation(now):
            self._start_probing(run.node, run, self._validate(incident, run))

    async def _look_at(self, node: str, incident: Incident) -> None:
        """Move an open incident on by the rules of states; validate it where no run that raised it goes on."""
        if change := incident.ruled(self._clock.wall()):
            await self._transition(incident, change, incident.step_ratio)
        alive = self._alive_on(node)
        if any(run.run_id == incident.raised_by for run in alive) or node in self._probing:
            return
        if incident.expired(self._clock.wall()):
            incident.text = "it could not be validated"
            if change := incident.calmed():
                await self._transition(incident, change, incident.step_ratio)
            return
        run = alive[0] if alive else None
        may = self._all_consent(node) if run else self._validator.levels.known_idle(node) and not self._fleet.busy(node)
        if not may or not self._fleet.is_connected(node):
            return
        if incident.wants_validation(self._clock.steady(), LONGEST_IDLE_PAUSE_SECONDS):
            self._start_probing(node, run, self._validate(incident, run))

    def _all_consent(self, node: str) -> bool:
        """Whether every run on the node has agreed to micro-benchmarks beside it."""
        return all(run.beside_job for run in self._alive_on(node))

    def _start_probing(self, node: str, run: Run | None, work: Coroutine[Any, Any, None]) -> None:
        task = self._background.start(work)
        probing = self._probing[node] = Probing(task, run)

        def over(_: asyncio.Task[None]) -> None:
            if self._probing.get(node) is probing:
                del self._probing[node]

        task.add_done_callback(over)

    def _stop_probing(self, node: str, run: Run | None) -> None:
        """Stop what goes on beside this run, or on the node as an idle one."""
        probing = self._probing.get(node)
        if probing is not None and (probing.run and probing.run.run_id) == (run and run.run_id):
            del self._probing[node]
            probing.task.cancel()

    async def _learn(self, run: Run) -> None:
        try:
            await self._validator.learn(run)
        except ProviderError as error:
            log.warning("no level of %s beside its job: %s", run.node, error)

    async def _validate(self, incident: Incident, run: Run | None) -> None:
        node = incident.resource.name
        # A later run may have taken its level on a node that is slow already: only the run under which the suspicion
        # was raised may still get one.
        learn = run is not None and incident.raised_by == run.run_id and incident.state is SUSPECTED
        try:
            comparisons = await self._validator.validate(node, run, learn=learn)
        except ProviderError as error:
            log.warning("validation of %s failed: %s", node, error)
            return
        change = incident.validated(comparisons, idle=run is None)
        against = [c for c in comparisons if incident.evidence(c.benchmark) > 0]
        self._metrics.validations.labels("slow" if against else "healthy").inc()
        incident.text = "; ".join(described(c, idle=run is None) for c in against or comparisons)
        if change:
            ratio = self._scorer.newest_ratio(incident.raised_by)
            await complete_despite_cancellation(self._transition(incident, change, ratio))

    async def _transition(self, incident: Incident, state: IncidentState, step_ratio: float) -> None:
        """Store a change, then report it to those who subscribe."""
        incident.changed_at = self._clock.wall()
        change = Transition(
            incident_id=incident.incident_id,
            resource=incident.resource,
            kind=incident.kind,
            state=state,
            raised_by=incident.raised_by,
            what=_what(incident.kind, step_ratio),
            evidence=incident.text,
            since=incident.since,
            changed_at=incident.changed_at,
            step_ratio=step_ratio,
        )
        await self._stored_incidents.put_transition(change)
        log.info("incident %s on %s: %s", change.incident_id, change.resource.name, state)
        self._notifier.publish(change)


def _what(kind: IncidentKind, step_ratio: float) -> str:
    if kind is IncidentKind.LOST:
        return "the run and the node's agent vanished"
    return f"step time {step_ratio:.2f}x baseline"
