"""One incident for what several nodes have in common: a failing switch is one incident, and not one for each node.

Nodes whose incidents are open at once are compared by what they share (`pharoah_learning.shared_causes`): the facts
that name a place, and the jobs that run on them. A suspicion counts as well as a confirmed incident: no micro-benchmark
of one node shows a slow switch, so such suspicions are never confirmed. The incident stays with the provider, because
it is about the nodes of several tenants.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from pharoah_learning.shared_causes import MIN_NODES, MIN_SHARE, SharedCause, find_shared_causes
from pharoah_protocol.incident_states import CLEARED, CONFIRMED
from pharoah_provider.domain import IncidentKind, Node, Subject, Transition
from pharoah_provider.fleet import Fleet
from pharoah_provider.monitoring.incident_book import IncidentBook
from pharoah_provider.monitoring.watched_runs import WatchedRuns
from pharoah_serving.clock import Clock

LOOK_SECONDS = 10.0
"""Between two looks: people act on it within minutes."""
LOOKS = 2
"""So many looks in a row must agree before an incident begins or ends: suspicions come one after the other."""


class SharedIncidents:
    """Looks for what open incidents have in common. Belongs to the event loop."""

    def __init__(
        self,
        book: IncidentBook,
        fleet: Fleet,
        runs: WatchedRuns,
        clock: Clock,
        affected: Callable[[], Collection[str]],
    ) -> None:
        """`affected`: the nodes whose incidents are open."""
        self._book, self._fleet, self._runs, self._clock, self._affected = book, fleet, runs, clock, affected
        self._open: dict[str, Transition] = {}
        self._looks: dict[str, int] = {}
        """Name of a cause to how many looks in a row have shown the opposite of what is known of it."""
        self._looked_at = float("-inf")

    def restore(self, changes: Iterable[Transition]) -> None:
        """After a restart: go on with the open incidents."""
        self._open = {change.subject.name: change for change in changes}

    async def look(self) -> None:
        """Raise and clear incidents; call it once a second. Raises StoreError."""
        if self._clock.steady() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = self._clock.steady()
        affected = self._affected()
        shared = (
            {node.node: tuple(self._list_shared(node)) for node in self._fleet.list_connected()} if affected else {}
        )
        causes = {cause.name: cause for cause in find_shared_causes(affected, shared)}
        # Affected nodes whose agents are away, as after a restart, are not counted, and do not show that it is over.
        away = {node for name in affected if name not in shared and (node := self._fleet.node(name))}
        unclear = causes.keys() | {name for node in away for name in self._list_shared(node)}
        over = {
            name: why
            for name in self._open.keys() - unclear
            if (why := _why_over({node: name in names for node, names in shared.items()}, affected, causes.values()))
        }
        changing = over.keys() | (causes.keys() - self._open.keys())
        self._looks = {name: self._looks.get(name, 0) + 1 for name in changing}
        for name in sorted(name for name, looks in self._looks.items() if looks >= LOOKS):
            if name in causes:
                await self._raise(causes[name])
            else:
                await self._clear(self._open[name], over[name])
            del self._looks[name]

    def _list_shared(self, node: Node) -> Iterator[str]:
        yield from node.places
        for watched in self._runs.on(node.node):
            if watched.run.job_id:
                yield f"job={watched.run.job_id.hex()[:8]}"

    async def _clear(self, incident: Transition, why: str) -> None:
        await self._book.put(incident.change(CLEARED, self._clock.wall(), why))
        del self._open[incident.subject.name]

    async def _raise(self, cause: SharedCause) -> None:
        now = self._clock.wall()
        equal = f", which also share {', '.join(cause.equal)}" if cause.equal else ""
        incident = Transition(
            incident_id=f"al-{secrets.token_hex(6)}",
            subject=Subject.from_shared(cause.name),
            kind=IncidentKind.SHARED,
            state=CONFIRMED,
            raised_by=b"",
            what=f"{len(cause.nodes)} of {cause.size} nodes with {cause.name} are slow at once{equal}",
            evidence=f"{', '.join(cause.nodes)}; by chance: {cause.p_value:.1g}",
            since=now,
            changed_at=now,
            step_ratio=1.0,
            established=False,
        )
        await self._book.put(incident)
        self._open[cause.name] = incident


def _why_over(shares: Mapping[str, bool], affected: Collection[str], causes: Iterable[SharedCause]) -> str:
    """Why the incident of a cause is over; empty while as many of its nodes are affected as it needs to begin. Further
    affected nodes make a cause less clear, and do not end it. `shares`: whether each node has it in common."""
    members = [node for node, has in shares.items() if has]
    slow = {node for node in members if node in affected}
    if others := [cause.name for cause in causes if slow.intersection(cause.nodes)]:
        return f"its nodes are explained by {', '.join(others)}"
    enough = max(MIN_NODES, MIN_SHARE * len(members))
    return "" if len(slow) >= enough else "its nodes are no longer slow at once"
