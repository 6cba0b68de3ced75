"""The monitor: reports move the incidents of nodes, suspicions are validated, and what is validated is reported.

It joins five parts: the `Scorer` turns signals into risk, `RunCounters` turn risk into suspicion, `Orders` send
micro-benchmarks where everybody has agreed, the `Validator` compares what they show, and the `Notifier` brings the
result to runs, agents and offers. What matters is in the store, so a restart confirms nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

from pharoah_learning.release import Release
from pharoah_protocol.incident_states import SUSPECTED
from pharoah_protocol.vocabulary import EndState, Purpose, Resource
from pharoah_provider.domain import IncidentKind, Report, Run, Transition
from pharoah_provider.fleet import Fleet
from pharoah_provider.monitoring.absent_agents import AbsentAgents
from pharoah_provider.monitoring.budgets import SHARE
from pharoah_provider.monitoring.counters import RunCounters
from pharoah_provider.monitoring.fleet_watch import FleetWatch
from pharoah_provider.monitoring.guest_orders import GuestOrders
from pharoah_provider.monitoring.idle_checks import PAUSE_SECONDS, IdleChecks
from pharoah_provider.monitoring.incident_book import IncidentBook
from pharoah_provider.monitoring.incidents import IDLE, LONGEST_IDLE_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Incident
from pharoah_provider.monitoring.notifier import Notifier
from pharoah_provider.monitoring.operator_webhook import OperatorWebhook
from pharoah_provider.monitoring.orders import Cause, Orders
from pharoah_provider.monitoring.probings import Probings
from pharoah_provider.monitoring.scorer import NOT_SCORED, Scorer, masked_by_orders
from pharoah_provider.monitoring.shared_incidents import SharedIncidents
from pharoah_provider.monitoring.validation import Question, Validator, described
from pharoah_provider.monitoring.watched_runs import WatchedRun, WatchedRuns
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_provider.storage.base import Storage
from pharoah_serving.clock import Clock
from pharoah_serving.errors import ProviderError
from pharoah_serving.metrics import Metrics

log = logging.getLogger("pharoah.provider.monitoring")

SETTLE_SECONDS = 120.0
"""How long a run is left alone before micro-benchmarks are tried beside it: its own baseline is not known yet."""
REPORT_SECONDS = 1.0
"""How often a sidecar reports: it hears of a benchmark's end that much later than of its last steps."""
WEBHOOK_SECONDS = 1.0
"""Time for the last incidents to be sent when the provider stops."""
TICK_SECONDS = 1.0
"""How often silent runs and idle nodes with open incidents are looked at."""


class ScoredWindows(NamedTuple):
    """The risks of some windows, in their order."""

    masked: list[bool]
    """Whether a micro-benchmark ran on the host during the window."""
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
        share: float = SHARE,
        check_pause_seconds: float = PAUSE_SECONDS,
        alert_url: str = "",
        guests: GuestOrders | None = None,
        expected: Callable[[str], Mapping[Resource, float]] = lambda _: {},
    ) -> None:
        """`share` of the time may be used for micro-benchmarks of one tenant (`monitoring.budgets`), and
        `check_pause_seconds` is how long an idle node is left alone between two checks; 0 for no checks. Incidents are
        sent to `alert_url`, an Alertmanager, unless it is empty. `guests` orders micro-benchmarks
        from sidecars; without it there are agents only. `expected(node)`: faults of its resources that are expected in
        a day (`node_forecasts`)."""
        self._store, self._fleet, self._metrics = store, fleet, metrics
        self._clock = clock = clock or Clock()
        self.runs = WatchedRuns(clock)
        self._scorer = Scorer()
        self.guests = guests or GuestOrders(fleet, metrics, clock)
        self._orders = Orders(fleet, store, self.runs, clock, settle_seconds, self.guests, share)
        self._validator = Validator(fleet, store, self._orders, self.run_on, self._is_slow)
        self.guests.use(self._validator.levels)
        self._notifier = Notifier(fleet, metrics)
        self._webhook = OperatorWebhook(alert_url)
        self._incidents = IncidentBook(store, self._notifier, self._webhook, clock)
        self._background = OwnedTasks()
        self._probing = Probings(self._background)
        self._watch_fleet = FleetWatch(
            AbsentAgents(self._incidents, fleet, self.runs, clock),
            IdleChecks(
                store, fleet, self._orders, self._incidents, self._background, self._has_other_use, clock,
                check_pause_seconds, expected=expected,
            ),
            SharedIncidents(self._incidents, fleet, self.runs, clock, self._affected),
        )  # fmt: skip
        self._looking: asyncio.Task[None] | None = None
        """The look at nodes of lost runs that goes on."""

    async def restore(self) -> None:
        """After a restart: go on with the open incidents and the runs that had not ended."""
        self._fleet.remember(await self._store.nodes.nodes())
        await self._orders.restore()
        await self._watch_fleet.restore(await self._incidents.restore())
        for run in await self._store.runs.lost_runs():
            self.runs.add_lost(run)
        active = await self._store.runs.active_runs()
        missed = await self._incidents.changes_since(active)
        for run in active:
            self._watch(run, missed[run.run_id], restored=True)

    def use(self, release: Release) -> None:
        """Score with this release and compare with its baselines from now on."""
        self._validator.levels.use(release)
        self._scorer.use(release)

    def watch(self, run: Run) -> None:
        """A new attempt of a run: it starts with clean windows, on whichever node it is now."""
        self._validator.levels.forget(run.run_id)
        self._scorer.forget(run.run_id)
        self._orders.stop(run.node)  # what goes on beside others was not agreed with this one
        self._watch(run)

    def _watch(self, run: Run, missed: Sequence[Transition] = (), *, restored: bool = False) -> None:
        self._probing.stop(run.node, None)  # the node is no longer idle
        incident = self._incidents.of(run.node)
        counters = RunCounters(run.ranks, raised=not incident.quiet and incident.raised_by == run.run_id)
        self.runs.add(run, counters, restored=restored)
        self._notifier.subscribe(run, missed)
        self._metrics.sessions_active.set(len(self.runs))

    def unwatch(self, run_id: bytes) -> None:
        """The run is over. An incident that it raised stays with its node, until it is validated."""
        if watched := self.runs.remove(run_id):
            self._probing.stop(watched.run.node, watched.run)
        self._notifier.unsubscribe(run_id)
        self.guests.ended(run_id)
        self._validator.levels.forget(run_id)
        self._scorer.forget(run_id)
        self._metrics.sessions_active.set(len(self.runs))

    def end_streams(self) -> None:
        """End the streams of alerts and of orders, before a restart."""
        self._notifier.end_streams()
        self.guests.end_streams()

    async def close(self) -> None:
        """End every validation that goes on."""
        await self._background.close()
        await self._webhook.close(WEBHOOK_SECONDS)

    async def keep_watch(self) -> None:
        """`tick` once a second, until it is cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                await self.tick()
            except ProviderError as error:
                log.warning("the monitor could not look at its runs and nodes: %s", error)

    async def tick(self) -> None:
        """End runs that are lost; look after agents; validate and expire incidents that no report moves on."""
        for watched in self.runs.silent():
            await self._lose(watched)
        await self._watch_fleet.look()
        for incident in self._incidents.open():
            await self._look_at(incident)
        if self._looking is None or self._looking.done():
            self._looking = self._background.start(self._orders.look_after_lost())

    def watches(self, run: Run) -> bool:
        """Whether this attempt goes on."""
        watched = self.runs.get(run.run_id)
        return watched is not None and watched.run.attempt == run.attempt

    def active(self, run_id: bytes) -> Run | None:
        """The attempt of a run that goes on."""
        watched = self.runs.get(run_id)
        return watched.run if watched else None

    def run_on(self, node: str) -> Run | None:
        """The run on a node that joined first, of those that report."""
        return next(iter(self.runs.alive_on(node)), None)

    def measures(self, node: str) -> bool:
        """Whether an order of ours runs on the host of a node, or did a moment ago."""
        now = self._clock.wall()
        return self._fleet.probed(node, now - REPORT_SECONDS, now)

    def score(self, run: Run, reports: Sequence[Report]) -> ScoredWindows:
        """Score the windows of a run and remember them."""
        self.runs.heard(run.run_id)
        masked = masked_by_orders(self._fleet, run.node, reports)
        risks = [
            NOT_SCORED if hidden else self._scorer.score(run.run_id, report)
            for report, hidden in zip(reports, masked, strict=True)
        ]
        return ScoredWindows(masked=masked, risks=risks)

    async def react(self, run: Run, reports: Sequence[Report], masked: Sequence[bool], risks: Sequence[float]) -> None:
        """Move the incident of the run's node on; call it after the reports are committed."""
        watched = self.runs.get(run.run_id)
        if watched is None:
            return
        incident = self._incidents.of(run.node)
        for report, hidden, score in zip(reports, masked, risks, strict=True):
            if hidden:
                continue
            change = None
            if watched.counters.second(report.rank, self._scorer.risky(score)):
                change = incident.suspect(report.ended_at - report.span_seconds, run, report.step_ratio)
            elif incident.raised_by == run.run_id and self._all_clean(run.node) and not watched.asked:
                change = incident.calmed()
            if change:
                ratio = report.step_ratio if change.is_reported else incident.step_ratio
                await self._incidents.change(incident, change, ratio)
        self._probe_if_wanted(watched, incident)

    async def ask(self, run: Run) -> None:
        """The tenant of a run asks that its node be validated. This is a suspicion like that of a counter, which is
        validated beside the run where it agrees, and else on the idle node."""
        watched = self.runs.get(run.run_id)
        if watched is None:
            return
        watched.asked = True
        incident = self._incidents.of(run.node)
        if change := incident.suspect(self._clock.wall(), run):
            incident.text = "the tenant of a run on it has asked for a validation"
            await self._incidents.change(incident, change, 1.0)
        self._probe_if_wanted(watched, incident)

    def alerts(self, run_id: bytes) -> AsyncIterator[Transition]:
        """What a run hears of its node: confirmed and cleared incidents, until it ends."""
        return self._notifier.alerts(run_id)

    def in_use(self, node: str) -> bool:
        """Whether a run may go on on the host of a node: no cell of a campaign may run there then."""
        return bool(self.runs.present(other.node for other in self._fleet.host_of(node)))

    # runs and nodes

    def _affected(self) -> set[str]:
        """The nodes whose incidents are open, suspected ones as well."""
        return {incident.subject.name for incident in self._incidents.open()}

    def _has_other_use(self, node: str) -> bool:
        """Whether no check of an idle node may run there: a run may go on, or an incident is validated."""
        return self.in_use(node) or node in self._probing or not self._incidents.of(node).quiet

    def _is_slow(self, node: str) -> bool:
        return self._incidents.of(node).confirmed

    def _all_clean(self, node: str) -> bool:
        """Whether no rank of any run on the node is raised."""
        return not any(watched.counters.raised for watched in self.runs.on(node))

    async def _lose(self, watched: WatchedRun) -> None:
        """A run that has gone silent ends. When the agent of its node has gone as well, the node is suspected."""
        run, silent = watched.run, self.runs.silent_seconds(watched)
        log.info("run on %s is lost: no report for %.0f s", run.node, silent)
        await self._store.runs.end_run(run, EndState.LOST, self._clock.wall())
        self.unwatch(run.run_id)
        self.runs.add_lost(run)
        incident = self._incidents.of(run.node)
        if self._fleet.is_connected(run.node):
            return
        if change := incident.suspect(self._clock.wall() - silent, run, kind=IncidentKind.LOST):
            incident.text = f"no report for {silent:.0f} s, and the agent is not connected"
            await self._incidents.change(incident, change, 1.0)

    # validation

    def _probe_if_wanted(self, watched: WatchedRun, incident: Incident) -> None:
        """Validate the suspicion that this run has raised; while there is none, learn what the benchmarks show beside
        its job."""
        run = watched.run
        if run.node in self._probing or not run.beside_job:
            return
        if incident.quiet:
            cause = Cause(run.organisation, run.node, Purpose.LEVEL)
            wanted = watched.counters.calm and not self._validator.levels_known(run)
            if wanted and self._orders.ready(cause, run):
                self._probing.start(run.node, run, self._learn(run))
        elif incident.raised_by == run.run_id and (watched.counters.risky or watched.asked):
            self._validate_if_ready(incident, run, LONGEST_PAUSE_SECONDS)

    async def _look_at(self, incident: Incident) -> None:
        """Move an open incident on by the rules of states; validate it where no run that raised it goes on."""
        node = incident.subject.name
        if change := incident.ruled(self._clock.wall()):
            await self._incidents.change(incident, change, incident.step_ratio)
        alive = self.runs.alive_on(node)
        if any(run.run_id == incident.raised_by for run in alive) or node in self._probing:
            return
        if incident.expired(self._clock.wall()):
            incident.text = "it could not be validated"
            if change := incident.calmed():
                await self._incidents.change(incident, change, incident.step_ratio)
            return
        run = alive[0] if alive else None
        if run is not None or self._validator.levels.known_idle(node):
            self._validate_if_ready(incident, run, LONGEST_IDLE_PAUSE_SECONDS)

    def _validate_if_ready(self, incident: Incident, run: Run | None, longest_pause: float) -> None:
        node = incident.subject.name
        cause = Cause(incident.organisation, node, Purpose.VALIDATION)
        ready = self._orders.ready(cause, run, looks_slow=incident.doubted)
        if ready and incident.wants_validation(self._clock.steady(), longest_pause):
            self._probing.start(node, run, self._validate(incident, run))

    async def _learn(self, run: Run) -> None:
        try:
            await self._validator.learn(run)
        except ProviderError as error:
            log.warning("no level of %s beside its job: %s", run.node, error)

    async def _validate(self, incident: Incident, run: Run | None) -> None:
        suspected = incident.state is SUSPECTED
        question = Question(
            organisation=incident.organisation,
            node=incident.subject.name,
            run=run,
            # A later run may have taken its level on a node that is slow already: only the run under which the
            # suspicion was raised may still get one.
            learn=run is not None and incident.raised_by == run.run_id and suspected,
            with_peer=suspected,  # what is confirmed is measured to see whether it is over, which needs no peer
            looks_slow=incident.doubted,
        )
        try:
            comparisons = await self._validator.validate(question)
        except ProviderError as error:
            log.warning("validation of %s failed: %s", question.node, error)
            return
        witness = run.organisation if run else IDLE
        change = incident.validated(comparisons, witness)
        if run is not None and (watched := self.runs.get(run.run_id)) and not incident.doubted:
            watched.asked = False  # it has been answered: from now on its levels decide, as they do for all
        against = [c for c in comparisons if incident.evidence(witness, c.benchmark) > 0]
        self._metrics.validations.labels("slow" if against else "healthy").inc()
        incident.text = "; ".join(described(c, idle=run is None) for c in against or comparisons)
        if change:
            ratio = self._scorer.newest_ratio(incident.raised_by)
            await complete_despite_cancellation(self._incidents.change(incident, change, ratio))
