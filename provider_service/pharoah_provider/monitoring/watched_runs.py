"""The runs that go on, as far as anybody knows: those that report, those that are silent, and those that were lost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from pharoah_provider.domain import Run
from pharoah_provider.monitoring.consent import OLDEST_TICKET_SECONDS, SILENCE_SECONDS, Presence
from pharoah_provider.monitoring.counters import RunCounters
from pharoah_serving.clock import Clock

LOST_SECONDS = 180.0
"""A run that has not reported for so long is lost. A sidecar that lives reports once a second and, while the provider
does not answer, retries after at most 15 s times 1.2 (jitter): it would have tried ten times. A run that is declared
lost by mistake joins again as a new attempt, so the price of an error is a line in a listing."""


@dataclass
class WatchedRun:
    """One active run, as the monitor follows it. Times are seconds of the steady clock."""

    run: Run
    counters: RunCounters
    began_at: float
    heard_at: float
    """When it last joined or reported; when the provider was restarted, if that was later."""
    ticket_at: float
    """When its newest node ticket was issued, or the restart."""
    heard_since_start: bool = True
    """Whether it has joined or reported since the provider was started."""
    asked: bool = False
    """Whether its tenant has asked for a validation that was not made yet."""

    @property
    def presence(self) -> Presence:
        """The run for the rule of consent. After a restart its silence before it is not known, so it has to report."""
        return Presence(self.run, self.began_at, self.heard_at if self.heard_since_start else -inf, self.ticket_at)


class WatchedRuns:
    """All active runs, and the lost ones whose nodes were not seen empty since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._active: dict[bytes, WatchedRun] = {}
        self._by_node: dict[str, dict[bytes, WatchedRun]] = defaultdict(dict)
        self._of_organisation: dict[str, Counter[str]] = defaultdict(Counter)
        """Organisation to its nodes, each with the number of its runs there."""
        self._lost: dict[bytes, Run] = {}
        self._lost_on: dict[str, set[bytes]] = defaultdict(set)
        """Node to the ids of its lost runs: it is asked for each node of the fleet, and they may be many."""

    def __len__(self) -> int:
        return len(self._active)

    def add(self, run: Run, counters: RunCounters, *, restored: bool = False, asked: bool = False) -> None:
        """A new attempt of a run; `restored`: one that had not ended before the provider was restarted. `asked`: its
        tenant has asked for a validation that was not made yet."""
        now = self._clock.steady()
        age = max(0.0, self._clock.wall() - run.joined_at) if restored else 0.0
        self.forget_lost(run.run_id)
        self.remove(run.run_id)  # an earlier attempt, perhaps on another node
        watched = WatchedRun(
            run, counters, began_at=now - age, heard_at=now, ticket_at=now, heard_since_start=not restored, asked=asked
        )
        self._active[run.run_id] = self._by_node[run.node][run.run_id] = watched
        self._of_organisation[run.organisation][run.node] += 1

    def add_lost(self, run: Run) -> None:
        """A run that was lost, and whose node was not seen empty since."""
        self._lost[run.run_id] = run
        self._lost_on[run.node].add(run.run_id)

    def forget_lost(self, run_id: bytes) -> None:
        """The sidecar of a lost run speaks for it again, or has said how it ended."""
        if (run := self._lost.pop(run_id, None)) is not None:
            self._lost_on[run.node].discard(run_id)

    def remove(self, run_id: bytes) -> WatchedRun | None:
        """The run is over. Returns what was known of it."""
        if watched := self._active.pop(run_id, None):
            del self._by_node[watched.run.node][run_id]
            nodes = self._of_organisation[watched.run.organisation]
            nodes[watched.run.node] -= 1
            nodes += Counter()  # drops what has become 0
        return watched

    def nodes_of(self, organisation: str) -> int:
        """On how many nodes an organisation has runs."""
        return len(self._of_organisation[organisation])

    def get(self, run_id: bytes) -> WatchedRun | None:
        """A run that goes on."""
        return self._active.get(run_id)

    def nodes(self) -> set[str]:
        """Nodes on which runs go on."""
        return {node for node, runs in self._by_node.items() if runs}

    def on(self, node: str) -> list[WatchedRun]:
        """Runs on a node."""
        return list(self._by_node.get(node, {}).values())

    def ids_on(self, node: str) -> set[bytes]:
        """The ids of the runs on a node."""
        return set(self._by_node.get(node, {}))

    def alive_on(self, node: str) -> list[Run]:
        """Runs on a node that report."""
        now = self._clock.steady()
        return [watched.run for watched in self.on(node) if now - watched.heard_at < SILENCE_SECONDS]

    def silent(self) -> list[WatchedRun]:
        """Runs that have not reported for so long that they are lost."""
        return [watched for watched in self._active.values() if self.is_silent(watched)]

    def is_silent(self, watched: WatchedRun) -> bool:
        """Whether a run still goes on as far as anybody knows, and is lost."""
        return self._active.get(watched.run.run_id) is watched and self.silent_seconds(watched) >= LOST_SECONDS

    def silent_seconds(self, watched: WatchedRun) -> float:
        """How long a run has not reported."""
        return self._clock.steady() - watched.heard_at

    def heard(self, run_id: bytes) -> None:
        """A run has reported."""
        if watched := self._active.get(run_id):
            watched.heard_at, watched.heard_since_start = self._clock.steady(), True

    def renew(self, run_id: bytes, issued_at: float) -> None:
        """A run has shown a node ticket that was issued at this unix time."""
        if watched := self._active.get(run_id):
            age = max(0.0, self._clock.wall() - issued_at)
            watched.ticket_at = max(watched.ticket_at, self._clock.steady() - age)

    def ticket_seconds(self, run_id: bytes) -> float:
        """Age of the newest node ticket of a run; infinite for a run that does not go on."""
        watched = self._active.get(run_id)
        return self._clock.steady() - watched.ticket_at if watched else inf

    def holds_node(self, run_id: bytes) -> bool:
        """Whether the newest node ticket of a run is young enough to speak for its node."""
        return self.ticket_seconds(run_id) < OLDEST_TICKET_SECONDS

    def list_lost_nodes(self) -> list[str]:
        """Nodes of lost runs that were not seen empty since."""
        return sorted(node for node, runs in self._lost_on.items() if runs)

    def note_empty(self, node: str) -> None:
        """The agent of a node has seen that nothing runs there: what was lost there is gone."""
        for run_id in self._lost_on.pop(node, set()):
            del self._lost[run_id]

    def present(self, nodes: Iterable[str]) -> list[Presence]:
        """All runs that may go on on some nodes."""
        names = set(nodes)
        active = [watched.presence for name in names for watched in self.on(name)]
        lost = [self._lost[run_id] for name in names for run_id in self._lost_on.get(name, ())]
        return [*active, *(Presence(run, -inf, -inf, -inf, lost=True) for run in lost)]
