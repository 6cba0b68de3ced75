"""Agents that vanish while a run is on their node: an incident of the agent, which ends when it is heard again.

It is an incident of its own beside that of the node: nobody can validate a node without its agent, and a node whose
agent is away can be slow as well. The provider has seen the silence itself, so the incident is confirmed at once. It
stays with the provider: no run can do anything about it, and an agent that is away says nothing about a job.

Silence is counted by the steady clock and from the start of the provider on: before that nobody listened, so a restart
raises no incident for agents that come back within the time below.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from pharoah_protocol.incident_states import CLEARED, CONFIRMED
from pharoah_provider.domain import IncidentKind, Run, Subject, Transition
from pharoah_provider.fleet import Fleet
from pharoah_provider.monitoring.incident_book import IncidentBook
from pharoah_provider.monitoring.watched_runs import WatchedRuns
from pharoah_serving.clock import Clock

ABSENT_SECONDS = 120.0
"""An agent sends telemetry every two seconds (`services.agent`). One whose provider vanished without a word notices it
after 60 s and the 20 s that gRPC waits for an answer, and then tries again after at most 10 s times 1.2 (jitter):
92 s (`agent.stream`). So whoever is away for longer than this is not just on its way back."""
KEPT_SECONDS = 86_400.0
"""An incident of a node on which no run goes on any more ends after a day: the node may be gone for good."""


class AbsentAgents:
    """Looks after the agents of all nodes with runs. Belongs to the event loop."""

    def __init__(self, book: IncidentBook, fleet: Fleet, runs: WatchedRuns, clock: Clock) -> None:
        self._book, self._fleet, self._runs, self._clock = book, fleet, runs, clock
        self._silent_since: dict[str, float] = {}
        """Node with a run to when its agent was heard last, or was missed first; seconds of the steady clock."""
        self._open: dict[str, Transition] = {}
        """The incidents that go on, by node."""

    def restore(self, changes: Iterable[Transition]) -> None:
        """After a restart: go on with the open incidents."""
        self._open = {change.subject.name: change for change in changes}

    async def look(self) -> None:
        """Raise and clear incidents; once a second. Raises StoreError, and then does the rest with the next look."""
        now, nodes = self._clock.steady(), self._runs.nodes()
        self._silent_since = {node: since for node, since in self._silent_since.items() if node in nodes}
        for node in nodes:
            silent = self._silent_seconds(node, now)
            if silent >= ABSENT_SECONDS and node not in self._open and (runs := self._runs.on(node)):
                await self._raise(node, runs[0].run, silent)
        for node, incident in list(self._open.items()):
            if self._fleet.silent_seconds(node) < ABSENT_SECONDS:
                await self._clear(incident, "the agent is heard again")
            elif node not in nodes and self._clock.wall() - incident.changed_at >= KEPT_SECONDS:
                await self._clear(incident, "the agent was not heard for a day, and no run is on its node")

    def _silent_seconds(self, node: str, now: float) -> float:
        """For how long the agent of a node with a run was not heard, as far as this process knows."""
        silent = self._fleet.silent_seconds(node)
        if silent < ABSENT_SECONDS:
            self._silent_since[node] = now - silent
        return now - self._silent_since.setdefault(node, now)

    async def _raise(self, node: str, run: Run, silent: float) -> None:
        now = self._clock.wall()
        incident = Transition(
            incident_id=f"al-{secrets.token_hex(6)}",
            subject=Subject.agent(node),
            kind=IncidentKind.AGENT_LOST,
            state=CONFIRMED,
            raised_by=run.run_id,
            what="the node's agent vanished under a run",
            evidence=f"nothing was heard of the agent for {silent:.0f} s",
            since=now - silent,
            changed_at=now,
            step_ratio=1.0,
            established=False,
        )
        await self._book.put(incident)
        self._open[node] = incident

    async def _clear(self, incident: Transition, why: str) -> None:
        await self._book.put(incident.change(CLEARED, self._clock.wall(), why))
        del self._open[incident.subject.name]
