"""The incidents of all nodes: kept in memory, stored with every change, and reported to those who subscribe."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Collection, Sequence

from pharoah_protocol.incident_states import SUSPECTED, IncidentState
from pharoah_provider.domain import IncidentKind, Run, Subject, SubjectKind, Transition
from pharoah_provider.monitoring.incidents import Incident
from pharoah_provider.monitoring.notifier import Notifier
from pharoah_provider.monitoring.operator_webhook import OperatorWebhook
from pharoah_provider.storage.base import Storage
from pharoah_serving.clock import Clock
from pharoah_serving.errors import StoreError

log = logging.getLogger("pharoah.provider.monitoring")


class IncidentBook:
    """The incident of each node. That of a run that is over is set aside when a later run raises its own, and is the
    incident of the node again when that one has ended."""

    def __init__(self, store: Storage, notifier: Notifier, webhook: OperatorWebhook, clock: Clock) -> None:
        self._store, self._notifier, self._webhook, self._clock = store, notifier, webhook, clock
        self._incidents: dict[str, Incident] = {}
        self._set_aside: dict[str, Incident] = {}
        self._unsaved: deque[Transition] = deque()
        """Changes that could not be stored yet, the oldest first."""
        self._saving = asyncio.Lock()

    async def restore(self) -> list[Transition]:
        """After a restart: go on with the open incidents of nodes. Returns those of other resources."""
        found = await self._store.incidents.open_incidents()
        open_incidents = [change for change in found if change.subject.kind is SubjectKind.NODE]
        active = {run.run_id for run in await self._store.runs.active_runs()}
        for change in sorted(open_incidents, key=lambda change: change.raised_by in active):
            run = await self._store.runs.run(change.raised_by)
            incident, node = Incident.restore(change, run.organisation if run else ""), change.subject.name
            if node in self._incidents:
                self._set_aside[node] = self._incidents[node]
            self._incidents[node] = incident
        self._notifier.restore(found)
        self._webhook.restore(found)
        return [change for change in found if change.subject.kind is not SubjectKind.NODE]

    async def changes_since(self, runs: Sequence[Run]) -> dict[bytes, list[Transition]]:
        """What has changed on the nodes of runs since they joined, by run."""
        earliest = min((run.joined_at for run in runs), default=0.0)
        changes = defaultdict[Subject, list[Transition]](list)
        for change in await self._store.incidents.all_changes(earliest) if runs else ():
            changes[change.subject].append(change)
        return {
            run.run_id: [
                change
                for subject in (Subject.node(run.node), Subject.check(run.node))
                for change in changes[subject]
                if change.changed_at >= run.joined_at
            ]
            for run in runs
        }

    def find(self, node: str) -> Incident:
        """The incident of a node; a quiet one when there was none."""
        incident = self._incidents.setdefault(node, Incident(Subject.node(node)))
        earlier = self._set_aside.get(node)
        if earlier is not None and (earlier.quiet or incident.quiet):
            del self._set_aside[node]
            if incident.quiet:
                incident = self._incidents[node] = earlier
        return incident

    def raise_for(self, run: Run, runs: Collection[bytes]) -> Incident:
        """The incident that a run raises: the open one of its node, unless the run that raised that one is over.
        `runs`: the ids of the runs on the node."""
        incident = self.find(run.node)
        if incident.is_left_behind(runs) and incident.raised_by != run.run_id and run.node not in self._set_aside:
            self._set_aside[run.node], self._incidents[run.node] = incident, Incident(incident.subject)
        return self._incidents[run.node]

    def superfluous(self, node: str, runs: Collection[bytes]) -> Incident | None:
        """The incident that is to end when the runs of both incidents of a node are over: the later one, unless it
        alone is confirmed. A tenant whose runs come and go could leave behind any number otherwise."""
        incident, earlier = self.find(node), self._set_aside.get(node)
        if earlier is None or not incident.is_left_behind(runs):
            return None
        return earlier if incident.confirmed and not earlier.confirmed else incident

    def open(self) -> list[Incident]:
        """Incidents that go on and are not set aside."""
        return [incident for incident in map(self.find, list(self._incidents)) if not incident.quiet]

    def is_confirmed(self, node: str) -> bool:
        """Whether a confirmed incident of a node goes on."""
        return self.find(node).confirmed or (node in self._set_aside and self._set_aside[node].confirmed)

    async def change(self, incident: Incident, state: IncidentState, step_ratio: float) -> None:
        """Store a change, then report it to those who subscribe. Raises StoreError; `save` then tries again."""
        incident.changed_at = self._clock.wall()
        if state is SUSPECTED:
            incident.raised_at = incident.changed_at
        change = Transition(
            incident_id=incident.incident_id,
            subject=incident.subject,
            kind=incident.kind,
            state=state,
            raised_by=incident.raised_by,
            what=_what(incident.kind, step_ratio),
            evidence=incident.text,
            since=incident.since,
            changed_at=incident.changed_at,
            step_ratio=step_ratio,
            established=incident.established,
            resource=incident.resource,
        )
        self._unsaved.append(change)
        await self.save()

    async def save(self) -> None:
        """Store and report what could not be stored before, in its order: incidents have changed already, and nothing
        would change them again. Raises StoreError."""
        async with self._saving:
            while self._unsaved:
                change = self._unsaved.popleft()
                try:
                    await self.put(change)
                except StoreError:
                    self._unsaved.appendleft(change)
                    raise

    async def put(self, change: Transition) -> None:
        """Store a change, then report it to those who subscribe."""
        await self._store.incidents.put_transition(change)
        log.info("incident %s on %s: %s", change.incident_id, change.subject.name, change.state)
        self._notifier.publish(change)
        self._webhook.send(change)


def _what(kind: IncidentKind, step_ratio: float) -> str:
    if kind is IncidentKind.LOST:
        return "the run and the node's agent vanished"
    return f"step time {step_ratio:.2f}x baseline"
