"""The monitor: reports move the incidents of nodes, suspicions are validated, and what is validated is reported.

It joins five parts: the `Scorer` turns signals into risk, `RunCounters` turn risk into suspicion,
`SuspicionValidations` decide what is validated when, `Orders` send micro-benchmarks where everybody has agreed, and the
`Notifier` brings the result to runs, agents and offers. What matters is in the store, so a restart confirms nothing
twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

from pharoah_learning.release import Release
from pharoah_protocol.vocabulary import EndState, Resource
from pharoah_provider.domain import IncidentKind, Report, Run, Subject, Transition
from pharoah_provider.fleet import Fleet
from pharoah_provider.monitoring.absent_agents import ABSENT_SECONDS, AbsentAgents
from pharoah_provider.monitoring.budgets import SHARE
from pharoah_provider.monitoring.counters import RunCounters
from pharoah_provider.monitoring.fleet_watch import FleetWatch
from pharoah_provider.monitoring.follow_ups import FollowUps
from pharoah_provider.monitoring.guest_orders import GuestOrders
from pharoah_provider.monitoring.idle_checks import PAUSE_SECONDS, IdleChecks
from pharoah_provider.monitoring.incident_book import IncidentBook
from pharoah_provider.monitoring.incidents import ASKED, Incident
from pharoah_provider.monitoring.notifier import Notifier
from pharoah_provider.monitoring.operator_webhook import OperatorWebhook
from pharoah_provider.monitoring.orders import Orders
from pharoah_provider.monitoring.scorer import NOT_SCORED, Scorer, mask_by_orders
from pharoah_provider.monitoring.shared_incidents import SharedIncidents
from pharoah_provider.monitoring.suspicion_validations import SuspicionValidations
from pharoah_provider.monitoring.validation import Validator
from pharoah_provider.monitoring.watched_runs import WatchedRun, WatchedRuns
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_provider.storage.base import Storage
from pharoah_serving.clock import Clock
from pharoah_serving.errors import ProviderError, StoreError
from pharoah_serving.metrics import Metrics

log = logging.getLogger("pharoah.provider.monitoring")

SETTLE_SECONDS = 120.0
"""How long a run is left alone before micro-benchmarks are tried beside it: its own baseline is not known yet."""
REPORT_SECONDS = 1.0
"""How often a sidecar reports: it hears of a benchmark's end that much later than of its last steps."""
WEBHOOK_SECONDS = 1.0
"""Time for the last incidents to be sent when the provider stops."""
MAX_LOST_AT_ONCE = 64
"""Runs that a tick ends as lost; the others follow in the next ones, so that those are not delayed."""
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
        self._validator = Validator(fleet, store, self._orders, self.run_on, self._is_slow, self._is_suspected)
        self.guests.use(self._validator.levels)
        self._notifier = Notifier(fleet, metrics)
        self._webhook = OperatorWebhook(alert_url)
        self._incidents = IncidentBook(store, self._notifier, self._webhook, clock)
        self._background = OwnedTasks()
        follow_ups = FollowUps(check_pause_seconds, clock)
        self._validations = SuspicionValidations(
            self._validator, self._orders, self._incidents, self.runs, self._scorer, follow_ups, metrics, clock,
            self._background,
        )  # fmt: skip
        self._watch_fleet = FleetWatch(
            AbsentAgents(self._incidents, fleet, self.runs, clock),
            IdleChecks(
                store, fleet, self._orders, self._incidents, self._background, self._has_other_use, clock,
                check_pause_seconds, expected=expected, is_suspected=self._is_suspected, follow_ups=follow_ups,
            ),
            SharedIncidents(self._incidents, fleet, self.runs, clock, self._find_affected),
        )  # fmt: skip
        self._looking: asyncio.Task[None] | None = None
        """The look at nodes of lost runs that goes on."""

    async def restore(self) -> None:
        """After a restart: go on with the open incidents and the runs that had not ended."""
        self._fleet.remember(await self._store.nodes.nodes(), await self._store.nodes.facts_since())
        await self._watch_fleet.restore(await self._incidents.restore())
        for run in await self._store.runs.list_lost_runs():
            self.runs.add_lost(run)
        active = await self._store.runs.active_runs()
        missed = await self._incidents.changes_since(active)
        for run in active:
            self._watch(run, missed[run.run_id], restored=True)
        await self._orders.restore()  # the budgets of a tenant depend on the nodes of its runs

    def use(self, release: Release) -> None:
        """Score with this release and compare with its baselines from now on."""
        self._validator.levels.use(release)
        self._scorer.use(release)

    async def list_missed_since(self, before: Run) -> Sequence[Transition]:
        """What has changed on the node of an attempt of a run since it joined; nothing when that cannot be read, as the
        next attempt begins all the same."""
        try:
            subjects = Subject.node(before.node), Subject.check(before.node)
            return [one for of in subjects for one in await self._store.incidents.changes(of, before.joined_at)]
        except StoreError as error:
            log.warning("a run that joins again may not hear which incidents are over: %s", error)
            return ()

    def watch(self, run: Run, missed: Sequence[Transition] = ()) -> None:
        """A new attempt of a run: it starts with clean windows, on whichever node it is now. `missed`: changes there
        that an earlier attempt, which was lost, may not have heard of."""
        self._validator.levels.forget(run.run_id)
        self._scorer.forget(run.run_id)
        self._orders.stop(run.node)  # what goes on beside others was not agreed with this one
        self._watch(run, missed)

    def _watch(self, run: Run, missed: Sequence[Transition] = (), *, restored: bool = False) -> None:
        self._validations.began(run)
        incident = self._incidents.find(run.node)
        counters = RunCounters(run.ranks, raised=not incident.quiet and incident.raised_by == run.run_id)
        asked = incident.unanswered and incident.raised_by == run.run_id
        self.runs.add(run, counters, restored=restored, asked=asked)
        self._notifier.subscribe(run, missed)
        self._metrics.sessions_active.set(len(self.runs))

    def unwatch(self, run_id: bytes) -> None:
        """The run is over. An incident that it raised stays with its node, until it is validated."""
        if watched := self.runs.remove(run_id):
            self._validations.end_run(watched.run)
        self._notifier.unsubscribe(run_id)
        self.guests.end_run(run_id)
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
            except Exception:  # the next tick may succeed, and nothing else ends runs or validates
                log.exception("the monitor could not look at its runs and nodes")

    async def tick(self) -> None:
        """End runs that are lost; look after agents; validate and expire incidents that no report moves on."""
        await self._incidents.save()
        # Together, so that their ends are stored with one commit: when a part of the network fails there are many.
        ended = await asyncio.gather(*map(self._lose, self.runs.silent()[:MAX_LOST_AT_ONCE]), return_exceptions=True)
        for failure in ended:
            if failure is not None:
                raise failure
        await self._watch_fleet.look()
        for incident in self._incidents.open():
            await self._validations.look_at(incident)
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
        return self._fleet.was_probed(node, now - REPORT_SECONDS, now)

    def score(self, run: Run, reports: Sequence[Report]) -> ScoredWindows:
        """Score the windows of a run and remember them."""
        self.runs.heard(run.run_id)
        masked = mask_by_orders(self._fleet, run.node, reports)
        risks = [
            NOT_SCORED if hidden else self._scorer.score(run.run_id, report)
            for report, hidden in zip(reports, masked, strict=True)
        ]
        return ScoredWindows(masked=masked, risks=risks)

    async def react(self, run: Run, reports: Sequence[Report], masked: Sequence[bool], risks: Sequence[float]) -> None:
        """Move the incident of the run's node on; call it after the reports are committed."""
        watched = self.runs.get(run.run_id)
        if watched is None or watched.run.attempt != run.attempt:
            return
        incident = self._incidents.find(run.node)
        for report, hidden, score in zip(reports, masked, risks, strict=True):
            if self.runs.get(run.run_id) is not watched:
                return  # it has ended while the changes of its incident were stored
            if hidden:
                continue
            change = None
            if watched.counters.second(report.rank, self._scorer.risky(score)):
                incident = self._raise_for(run)
                since = min(report.ended_at - report.span_seconds, self._clock.wall())  # clocks of nodes may be ahead
                change = incident.suspect(since, run, report.step_ratio)
            elif incident.raised_by == run.run_id and self._all_clean(run.node) and not watched.asked:
                change = incident.calm()
            if change:
                ratio = report.step_ratio if change.is_reported else incident.step_ratio
                await self._validations.change(incident, change, ratio)
        self._validations.probe_if_wanted(watched, incident)

    async def ask(self, run: Run) -> None:
        """The tenant of a run asks that its node be validated. This is a suspicion like that of a counter, which is
        validated beside the run where it agrees, and else on the idle node."""
        watched = self.runs.get(run.run_id)
        if watched is None:
            return
        watched.asked = True
        incident = self._raise_for(run)
        if change := incident.suspect(self._clock.wall(), run):
            incident.text, incident.asked = ASKED, True
            await self._incidents.change(incident, change, 1.0)
        self._validations.probe_if_wanted(watched, incident)

    def alerts(self, run_id: bytes) -> AsyncIterator[Transition]:
        """What a run hears of its node: confirmed and cleared incidents, until it ends."""
        return self._notifier.alerts(run_id)

    def in_use(self, node: str) -> bool:
        """Whether a run may go on on the host of a node: no cell of a campaign may run there then."""
        return bool(self.runs.present(other.node for other in self._fleet.host_of(node)))

    # runs and nodes

    def _find_affected(self) -> set[str]:
        """The nodes whose incidents are open, suspected ones as well. A question of a tenant shows nothing slow."""
        return {incident.subject.name for incident in self._incidents.open() if not self._is_only_asked(incident)}

    def _is_only_asked(self, incident: Incident) -> bool:
        """Whether nothing but the question of a tenant speaks against a node."""
        is_slow = incident.confirmed or incident.doubted or not self._all_clean(incident.subject.name)
        return incident.asked and not is_slow

    def _has_other_use(self, node: str) -> bool:
        """Whether no check of an idle node may run there: a run may go on, or an incident is or can be validated."""
        if self.in_use(node) or self._validations.goes_on(node):
            return True
        incident = self._incidents.find(node)
        return not incident.quiet and (incident.confirmed or self._validations.can_validate_idle(node))

    def _is_suspected(self, node: str) -> bool:
        """Whether a run has an open suspicion of a node, or the node is known to be slow."""
        return not self._incidents.find(node).quiet

    def _is_slow(self, node: str) -> bool:
        return self._incidents.is_confirmed(node)

    def _raise_for(self, run: Run) -> Incident:
        """The incident that a run raises, which is its own or still that of another run."""
        before = self._incidents.find(run.node)
        incident = self._incidents.raise_for(run, self.runs.ids_on(run.node))
        if incident is not before:
            self._validations.set_aside(run.node)
        return incident

    def _all_clean(self, node: str) -> bool:
        """Whether no rank of any run on the node is raised."""
        return not any(watched.counters.raised for watched in self.runs.on(node))

    async def _lose(self, watched: WatchedRun) -> None:
        """A run that has gone silent ends. When the agent of its node has gone as well, the node is suspected."""
        run, silent = watched.run, self.runs.silent_seconds(watched)
        if not self.runs.is_silent(watched):  # others were stored before it, and it has reported or ended meanwhile
            return
        log.info("run on %s is lost: no report for %.0f s", run.node, silent)
        await self._store.runs.end_run(run, EndState.LOST, self._clock.wall())
        if self.runs.get(run.run_id) is not watched:  # it has joined again, or ended, while this was stored
            return
        self.unwatch(run.run_id)
        self.runs.add_lost(run)
        incident = self._incidents.find(run.node)
        if self._fleet.silent_seconds(run.node) < ABSENT_SECONDS:  # a machine without power stays connected for long
            return
        if change := incident.suspect(self._clock.wall() - silent, run, kind=IncidentKind.LOST):
            incident.text = f"no report for {silent:.0f} s, and nothing was heard of the agent"
            await self._incidents.change(incident, change, 1.0)
