"""What is watched beside the reports of runs: agents that vanish, idle nodes, and what slow nodes have in common."""

from __future__ import annotations

from collections.abc import Sequence

from pharoah_provider.domain import SubjectKind, Transition
from pharoah_provider.monitoring.absent_agents import AbsentAgents
from pharoah_provider.monitoring.idle_checks import IdleChecks
from pharoah_provider.monitoring.shared_incidents import SharedIncidents


class FleetWatch:
    """Each of the three has incidents of its own, beside those of nodes that runs raise."""

    def __init__(self, agents: AbsentAgents, checks: IdleChecks, shared: SharedIncidents) -> None:
        self._agents, self.checks, self._shared = agents, checks, shared

    async def restore(self, changes: Sequence[Transition]) -> None:
        """After a restart: go on with the open incidents."""
        self._agents.restore(change for change in changes if change.subject.kind is SubjectKind.AGENT)
        self._shared.restore(change for change in changes if change.subject.kind is SubjectKind.SHARED)
        await self.checks.restore(change for change in changes if change.subject.kind is SubjectKind.CHECK)

    async def look(self) -> None:
        """Look around; once a second. Raises StoreError, and then does the rest with the next look."""
        await self._agents.look()
        await self.checks.look()
        await self._shared.look()
