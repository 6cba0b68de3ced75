"""Brings what becomes of incidents to those who subscribe: runs on the node, its agent, and offers of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from pharoah_provider.domain import NodeState, Run, Subject, Transition
from pharoah_provider.fleet import Fleet
from pharoah_serving.metrics import Metrics


@dataclass
class Subscription:
    """A run that hears of the incidents of its node."""

    run: Run
    changes: list[Transition] = field(default_factory=list)
    """What was reported to it, in order. A stream that begins again reports all of it again; sidecars drop what they
    have seen."""
    ended: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def all(self) -> AsyncIterator[Transition]:
        """The changes so far, then as they come, until the run ends."""
        sent = 0
        while True:
            changed = self._changed
            while sent < len(self.changes):
                yield self.changes[sent]
                sent += 1
            if self.ended:
                return
            await changed.wait()

    def report(self, change: Transition) -> None:
        """A change is reported once, and to others than the run that raised it when the incident is established."""
        if not change.established and change.raised_by != self.run.run_id:
            return
        if any((known.incident_id, known.state) == (change.incident_id, change.state) for known in self.changes):
            return
        self.changes.append(change.redact_for(self.run.run_id))
        self._wake()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        """Wake all who wait; whoever waits next waits for the next change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Notifier:
    """Knows the validated state of every node, and who wants to hear of it."""

    def __init__(self, fleet: Fleet, metrics: Metrics) -> None:
        self._fleet, self._metrics = fleet, metrics
        self._subscriptions: dict[bytes, Subscription] = {}
        self._confirmed: dict[Subject, Transition] = {}

    def restore(self, open_incidents: Sequence[Transition]) -> None:
        """After a restart: the incidents that were confirmed before it."""
        for change in open_incidents:
            if change.state.is_reported and change.established:
                self._set(change)

    def subscribe(self, run: Run, missed: Sequence[Transition] = ()) -> None:
        """A run has come to its node. It hears at once of an incident that is established there.

        `missed`: changes while it was there, from before a restart of the provider or since an attempt that was lost.
        """
        if (known := self._subscriptions.get(run.run_id)) is not None and known.run.node == run.node:
            known.run = run
            return
        if known is not None:
            known.end()
        subscription = self._subscriptions[run.run_id] = Subscription(run)
        reported = [change for change in missed if change.state.is_reported]
        known_ids = {change.incident_id for change in reported}
        reported[:0] = [one for one in self._find_confirmed(run.node) if one.incident_id not in known_ids]
        for change in reported:
            subscription.report(change)

    def unsubscribe(self, run_id: bytes) -> None:
        """The run is over. The incidents of its node go on."""
        if subscription := self._subscriptions.pop(run_id, None):
            subscription.end()

    def end_streams(self) -> None:
        """End all streams, before a restart; sidecars open them again."""
        for subscription in self._subscriptions.values():
            subscription.end()

    def publish(self, change: Transition) -> None:
        """A change of an incident, once it is stored."""
        if not change.state.is_reported:
            return
        self._metrics.alerts.labels(change.state).inc()
        if change.established:
            self._set(change)
        if change.subject not in _subjects_of(change.subject.name):
            return  # it stays with the provider
        for subscription in self._subscriptions.values():
            if subscription.run.node == change.subject.name:
                subscription.report(change)

    async def alerts(self, run_id: bytes) -> AsyncIterator[Transition]:
        """What a run hears: confirmed and cleared incidents of its node, until it ends."""
        if subscription := self._subscriptions.get(run_id):
            async for change in subscription.all():
                yield change

    def _set(self, change: Transition) -> None:
        if change.state.is_open:
            self._confirmed[change.subject] = change
        else:
            self._confirmed.pop(change.subject, None)
        node = change.subject.name
        first = next(iter(self._find_confirmed(node)), None)
        self._fleet.set_state(
            node, NodeState(first.state, first.since, first.public().evidence) if first else NodeState()
        )

    def _find_confirmed(self, node: str) -> list[Transition]:
        """The incidents that are confirmed and established on a node."""
        return [self._confirmed[subject] for subject in _subjects_of(node) if subject in self._confirmed]


def _subjects_of(node: str) -> tuple[Subject, ...]:
    """What is about a node itself. An incident of its agent stays with the provider."""
    return Subject.node(node), Subject.check(node)
