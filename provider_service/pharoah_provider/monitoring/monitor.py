"""The monitor: one state per active run, fed by reports, remembered in the store so that a restart does not re-fire."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pharoah_learning.models.cross_validation import Comparison
from pharoah_learning.models.hazard import risk
from pharoah_learning.release import Release, SurvivalModel
from pharoah_learning.signals import features
from pharoah_protocol.vocabulary import IncidentState
from pharoah_provider.domain import Report, Run
from pharoah_provider.fleet import Fleet
from pharoah_provider.monitoring.counters import RunCounters
from pharoah_provider.monitoring.incidents import Incident
from pharoah_provider.monitoring.validation import Validator
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_provider.storage.base import Storage
from pharoah_serving.errors import ProviderError
from pharoah_serving.metrics import Metrics

log = logging.getLogger("pharoah.provider.monitoring")

KEPT_WINDOWS = 16
SETTLE_SECONDS = 120.0
"""How long a run is left alone before micro-benchmarks are tried beside it: it is getting to know itself."""
SILENCE_SECONDS = 60.0
MOMENT_SECONDS = 1.0
"""How often a sidecar reports: it hears of a benchmark's end that much later than of its last steps."""
REPORTED_STATES = (IncidentState.CONFIRMED, IncidentState.CLEARED)
"""States that are reported to tenants. A suspicion stays with the provider until it is validated."""


@dataclass
class Watched:
    """One active run."""

    run: Run
    counters: RunCounters = field(init=False)
    incident: Incident = field(default_factory=Incident)
    windows: dict[int, deque[Report]] = field(default_factory=dict)
    """Newest windows by rank."""
    evidence: str = ""
    raised_ratio: float = 1.0
    """Step time that made its node suspect."""
    probing: asyncio.Task[None] | None = None
    alerts: list[dict[str, Any]] = field(default_factory=list)
    """Transitions that were told, in order."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    began_at: float = field(default_factory=time.monotonic)
    heard_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.counters = RunCounters(self.run.ranks)

    def alive(self) -> bool:
        """Whether it was heard of lately: a sidecar may die without a word."""
        return time.monotonic() - self.heard_at < SILENCE_SECONDS

    def calm(self, settle_seconds: float) -> bool:
        """Whether it has run for a while and looks healthy."""
        settled = time.monotonic() - self.began_at >= settle_seconds
        return settled and self.incident.quiet and self.counters.calm

    def wake(self) -> None:
        """Tell all who wait; whoever waits next waits for the next change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class Monitor:
    """Scores reports, validates suspicions, tells alerts."""

    def __init__(self, store: Storage, fleet: Fleet, metrics: Metrics, settle_seconds: float = SETTLE_SECONDS) -> None:
        self._store, self._fleet, self._metrics = store, fleet, metrics
        self._settle_seconds = settle_seconds
        self._validator = Validator(fleet, store, self.run_on)
        self._watched: dict[bytes, Watched] = {}
        self._model = SurvivalModel.threshold_only()
        self._background = OwnedTasks()

    async def restore(self) -> None:
        """After a restart: go on with the runs that had not ended, in the state they were in."""
        for run in await self._store.runs.active_runs():
            self.watch(run)
        for alert in await self._store.alerts.open_alerts():
            if watched := self._watched.get(bytes(alert["run_id"])):
                watched.incident = Incident(IncidentState(alert["state"]), alert["alert_id"], alert["since"])
                watched.counters = RunCounters(watched.run.ranks, raised=True)
                watched.evidence = alert["evidence"]
                if alert["state"] in REPORTED_STATES:
                    watched.alerts.append(alert)

    def use(self, release: Release) -> None:
        """Score with this release from now on."""
        self._validator.levels.use(release)
        if release.survival is not None:
            self._model = release.survival

    def watch(self, run: Run) -> None:
        """A new attempt of a run starts with a clean record."""
        if old := self._watched.get(run.run_id):
            old.run, old.windows, old.began_at = run, {}, time.monotonic()
            old.counters = RunCounters(run.ranks, raised=not old.incident.quiet)
            self._validator.levels.forget(run.run_id)  # it may stand on another node now
        else:
            self._watched[run.run_id] = Watched(run)
        self._metrics.sessions_active.set(len(self._watched))

    async def unwatch(self, run_id: bytes) -> None:
        """The run is over: an alert that still fires is resolved with it."""
        if watched := self._watched.pop(run_id, None):
            if watched.probing:
                watched.probing.cancel()
            if change := watched.incident.calmed():
                ratio = watched.raised_ratio if change is IncidentState.DISMISSED else 1.0
                await self._transition(watched, change, ratio, "the run ended")
            watched.ended = True
            watched.wake()
        self._validator.levels.forget(run_id)
        self._metrics.sessions_active.set(len(self._watched))

    def drain(self) -> None:
        """Let everybody who listens for alerts go; they come back after the restart."""
        for watched in self._watched.values():
            watched.ended = True
            watched.wake()

    async def close(self) -> None:
        """End the validations that still run."""
        await self._background.close()

    def run_on(self, node: str) -> Run | None:
        """The run on a node now."""
        return next((w.run for w in self._watched.values() if w.run.node == node and w.alive()), None)

    def measures(self, node: str) -> bool:
        """Whether micro-benchmarks run on a node, or did a moment ago."""
        now = time.time()
        return self._probed(node, now - MOMENT_SECONDS, now)

    def score(self, run: Run, reports: Sequence[Report]) -> tuple[list[bool], list[float]]:
        """Whether each window is masked (a probe ran during it), and its risk; remembers the windows."""
        watched = self._watched.get(run.run_id)
        if watched is not None:
            watched.heard_at = time.monotonic()
        masked, risks = [], []
        for report in reports:
            hidden = self._probed(run.node, report.ended_at - report.span_seconds, report.ended_at)
            masked.append(hidden)
            windows = watched.windows.setdefault(report.rank, deque(maxlen=KEPT_WINDOWS)) if watched else deque()
            if not hidden:
                windows.append(report)
            risks.append(self._risk(windows) if windows and not hidden else float("nan"))
        return masked, risks

    async def react(self, run: Run, reports: Sequence[Report], masked: Sequence[bool], risks: Sequence[float]) -> None:
        """Move the run's incident on; call after the reports are committed."""
        watched = self._watched.get(run.run_id)
        if watched is None:
            return
        for report, hidden, score in zip(reports, masked, risks, strict=True):
            if hidden:
                continue
            began = report.ended_at - report.span_seconds
            change = None
            if watched.counters.second(report.rank, score > self._model.threshold):
                change = watched.incident.suspect(began)
            elif not watched.counters.raised:
                change = watched.incident.calmed()
            if change is IncidentState.SUSPECTED:
                watched.evidence, watched.raised_ratio = "", report.step_ratio
            if change:
                ratio = watched.raised_ratio if change is IncidentState.DISMISSED else report.step_ratio
                await self._transition(watched, change, ratio)
        self._probe_if_wanted(watched)

    async def alerts(self, run_id: bytes) -> AsyncIterator[dict[str, Any]]:
        """What a tenant hears of a run: transitions so far, then as they come, until the run ends."""
        watched = self._watched.get(run_id)
        told = 0
        while watched is not None:
            changed = watched.changed
            while told < len(watched.alerts):
                yield watched.alerts[told]
                told += 1
            if watched.ended:
                return
            await changed.wait()

    def _risk(self, windows: Sequence[Report]) -> float:
        return risk(features([report.window for report in windows]), self._model.coefficients, self._model.means)

    def _probed(self, node: str, began: float, ended: float) -> bool:
        return any(start < ended and began < end for start, end in self._fleet.probing.get(node, []))

    def _probe_if_wanted(self, watched: Watched) -> None:
        """Validate a suspicion; while there is none, learn what the benchmarks show beside this job."""
        busy = watched.probing is not None and not watched.probing.done()
        beside = [other.run for other in self._watched.values() if other.run.node == watched.run.node and other.alive()]
        if busy or not all(run.beside_job for run in (watched.run, *beside)):
            return
        if watched.counters.risky and watched.incident.wants_validation(time.monotonic()):
            watched.probing = self._background.start(self._validate(watched))
        elif watched.calm(self._settle_seconds) and not self._validator.levels_known(watched.run):
            watched.probing = self._background.start(self._learn(watched))

    async def _learn(self, watched: Watched) -> None:
        try:
            await self._validator.learn(watched.run.node, watched.run)
        except ProviderError as error:
            log.warning("no level of %s beside its job: %s", watched.run.node, error)

    async def _validate(self, watched: Watched) -> None:
        try:
            node = await self._store.nodes.node(watched.run.node)
            if node is None:
                return
            incident = watched.incident
            comparisons = await self._validator.validate(node, watched.run)
            change = incident.validated(comparisons)
            against = [c for c in comparisons if incident.evidence(c.benchmark) > 0]
            self._metrics.validations.labels("slow" if against else "healthy").inc()
            watched.evidence = "; ".join(_told(c) for c in against or comparisons)
            if change:
                await self._transition(watched, change, _latest_ratio(watched))
        except ProviderError as error:
            log.warning("validation of %s failed: %s", watched.run.node, error)

    async def _transition(self, watched: Watched, state: IncidentState, step_ratio: float, evidence: str = "") -> None:
        now = time.time()
        alert = {
            "alert_id": watched.incident.incident_id,
            "run_id": watched.run.run_id,
            "node": watched.run.node,
            "state": state,
            "fault_domain": "node" if state in REPORTED_STATES else "unknown",
            "what": f"step time {step_ratio:.2f}x baseline",
            "evidence": evidence or watched.evidence,
            "since": watched.incident.since,
            "changed_at": now,
            "step_ratio": step_ratio,
        }
        await self._store.alerts.put_alert(alert)
        log.info("alert %s on %s: %s", alert["alert_id"], alert["node"], state)
        if state in REPORTED_STATES:
            self._metrics.alerts.labels(state).inc()
            watched.alerts.append(alert)
            watched.wake()


def _latest_ratio(watched: Watched) -> float:
    newest = [windows[-1].step_ratio for windows in watched.windows.values() if windows]
    return max(newest, default=1.0)


def _told(c: Comparison) -> str:
    return f"{c.benchmark} {c.own_ratio:.2f}x its baseline beside a job, peer {c.peer_ratio:.2f}x"
