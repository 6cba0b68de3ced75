"""Validation because of runs: when a node is measured, and what the result means for its incident.

While a run raises no suspicion, what micro-benchmarks show beside it is learned, so that a suspicion can be compared
with it. A suspicion is validated beside the run that raised it where it agrees, and on the idle node once no run goes
on. Beside a later run, a confirmed incident is validated to see whether it is over.
"""

from __future__ import annotations

import asyncio
import logging

from pharoah_protocol.incident_states import DISMISSED, SUSPECTED, IncidentState
from pharoah_protocol.vocabulary import Purpose
from pharoah_provider.domain import Run
from pharoah_provider.monitoring.follow_ups import FollowUps
from pharoah_provider.monitoring.incident_book import IncidentBook
from pharoah_provider.monitoring.incidents import IDLE, MAX_IDLE_PAUSE_SECONDS, MAX_PAUSE_SECONDS, Incident
from pharoah_provider.monitoring.orders import Cause, Orders
from pharoah_provider.monitoring.probings import Probings
from pharoah_provider.monitoring.scorer import Scorer
from pharoah_provider.monitoring.validation import Question, Validator, describe
from pharoah_provider.monitoring.watched_runs import WatchedRun, WatchedRuns
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_serving.clock import Clock
from pharoah_serving.errors import ProviderError
from pharoah_serving.metrics import Metrics

log = logging.getLogger("pharoah.provider.monitoring")


class SuspicionValidations:
    """At most one validation, or measurement of a level, goes on for each node; the tasks belong to `scope`."""

    def __init__(
        self,
        validator: Validator,
        orders: Orders,
        incidents: IncidentBook,
        runs: WatchedRuns,
        scorer: Scorer,
        follow_ups: FollowUps,
        metrics: Metrics,
        clock: Clock,
        scope: OwnedTasks,
    ) -> None:
        self._validator, self._orders, self._incidents, self._runs = validator, orders, incidents, runs
        self._scorer, self._follow_ups, self._metrics, self._clock = scorer, follow_ups, metrics, clock
        self._probing = Probings(scope)

    def tasks(self) -> list[asyncio.Task[None]]:
        """All that goes on."""
        return self._probing.tasks()

    def goes_on(self, node: str) -> bool:
        """Whether a node is measured now because of a run."""
        return node in self._probing

    def can_validate_idle(self, node: str) -> bool:
        """Whether a campaign has measured the node while it was idle."""
        return self._validator.levels.is_known_idle(node)

    def began(self, run: Run) -> None:
        """A run has come to its node, which is no longer idle."""
        self._probing.stop(run.node, None)

    def set_aside(self, node: str) -> None:
        """The open incident of a node was set aside: what is measured because of it is not about the later one."""
        self._probing.stop_all(node)

    def end_run(self, run: Run) -> None:
        """A run is over."""
        self._probing.stop(run.node, run)
        self._validator.levels.forget(run.run_id)

    def probe_if_wanted(self, watched: WatchedRun, incident: Incident) -> None:
        """Validate the suspicion that this run has raised; while there is none, or only that of a run that was over
        before, learn what the benchmarks show beside its job."""
        run = watched.run
        if run.node in self._probing or not run.beside_job:
            return
        earlier = incident.is_earlier_than(run) and incident.is_left_behind(self._runs.ids_on(run.node))
        if incident.quiet or earlier:
            cause = Cause(run.organisation, run.node, Purpose.LEVEL)
            wanted = watched.counters.calm and not self._validator.levels_known(run)
            if wanted and self._orders.ready(cause, run):
                self._probing.start(run.node, run, self._learn(run))
        elif incident.raised_by == run.run_id and (watched.counters.risky or watched.asked):
            self._validate_if_ready(incident, run, MAX_PAUSE_SECONDS)

    async def look_at(self, incident: Incident) -> None:
        """Move an open incident on by the rules of states; validate it where no run that raised it goes on."""
        node = incident.subject.name
        if self._incidents.find(node) is not incident:
            return  # a run has raised another one meanwhile
        if (superfluous := self._incidents.superfluous(node, self._runs.ids_on(node))) is not None:
            await self._end(superfluous, "the run that raised it is over; another incident of the node goes on")
            return
        if change := incident.apply_rules(self._clock.wall()):
            await self.change(incident, change, incident.step_ratio)
        alive = self._runs.alive_on(node)
        if any(run.run_id == incident.raised_by for run in alive) or node in self._probing:
            return
        if incident.has_expired(self._clock.wall()):
            await self._end(incident, "it could not be validated")
            return
        run = alive[0] if alive else None
        if self._can_compare(incident, run):
            self._validate_if_ready(incident, run, MAX_IDLE_PAUSE_SECONDS)
        elif run is None and incident.state is SUSPECTED and self._validator.is_connected(node):
            self._follow_ups.want(node, incident.incident_id)
            if self._follow_ups.was_found_healthy(node, incident.incident_id):
                await self._end(incident, "checks of every resource of the idle node have found it healthy")

    def _can_compare(self, incident: Incident, run: Run | None) -> bool:
        """Whether a validation beside a run, or of the idle node, can say something about an incident. Beside a later
        run only baselines count, which are too uncertain to confirm a suspicion soon; they show that a confirmed
        incident is over."""
        if run is None:
            return self.can_validate_idle(incident.subject.name)
        later = incident.is_earlier_than(run)
        return not later or (incident.confirmed and self._validator.levels.has_baseline(run))

    async def _end(self, incident: Incident, why: str) -> None:
        """End an incident that no validation has ended."""
        incident.text = why
        if change := incident.calm():
            await self._incidents.change(incident, change, incident.step_ratio)

    async def change(self, incident: Incident, change: IncidentState, step_ratio: float) -> None:
        """Store and report a change. When a node is not slow any more, what was learned of it beside later runs is too
        slow, and is forgotten."""
        if change.is_reported and not change.is_open:
            for watched in self._runs.on(incident.subject.name):
                if incident.is_earlier_than(watched.run):
                    self._validator.levels.learn_again(watched.run.run_id)
        await self._incidents.change(incident, change, step_ratio)

    def _validate_if_ready(self, incident: Incident, run: Run | None, longest_pause: float) -> None:
        node = incident.subject.name
        cause = Cause(incident.organisation, node, Purpose.VALIDATION)
        ready = self._orders.ready(cause, run, looks_slow=_is_urgent(incident, run))
        if ready and incident.wants_validation(self._clock.steady(), longest_pause):
            self._probing.start(node, run, self._validate(incident, run))

    async def _learn(self, run: Run) -> None:
        try:
            await self._validator.learn(run)
        except ProviderError as error:
            log.warning("no level of %s beside its job: %s", run.node, error)

    async def _validate(self, incident: Incident, run: Run | None) -> None:
        suspected = incident.state is SUSPECTED
        raised = run is not None and incident.raised_by == run.run_id
        question = Question(
            organisation=incident.organisation,
            node=incident.subject.name,
            run=run,
            own=not incident.is_earlier_than(run),
            learn=raised and suspected,
            with_peer=suspected,  # what is confirmed is measured to see whether it is over, which needs no peer
            looks_slow=_is_urgent(incident, run),
        )
        try:
            comparisons = await self._validator.validate(question)
        except ProviderError as error:
            log.warning("validation of %s failed: %s", question.node, error)
            return
        witness = run.organisation if run else IDLE
        change = incident.validate(comparisons, witness)
        if raised and run and (watched := self._runs.get(run.run_id)) and not incident.doubted:
            watched.asked = False  # it has been answered: from now on its levels decide, as they do for all
        against = [c for c in comparisons if incident.evidence(witness, c.benchmark) > 0]
        self._metrics.validations.labels("slow" if against else "healthy").inc()
        incident.text = "; ".join(describe(c, idle=run is None) for c in against or comparisons)
        if change is DISMISSED:  # by the idle node; something that was not measured may still be wrong with it
            self._follow_ups.want(question.node, incident.incident_id)
        if change:
            ratio = self._scorer.newest_ratio(incident.raised_by)
            await complete_despite_cancellation(self.change(incident, change, ratio))


def _is_urgent(incident: Incident, run: Run | None) -> bool:
    """Whether a validation may use the allowance for nodes that look slow, which are to be confirmed at once. Whether
    an incident of an earlier run is over can wait, so that the later run has that allowance for itself."""
    return incident.doubted and not incident.is_earlier_than(run)
