"""Incidents and their history."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import IncidentState
from pharoah_provider.domain import IncidentKind, Resource, ResourceKind, Transition
from pharoah_provider.store.database import Database

_COLUMNS = "?,?,?,?,?,?,?,?,?,?,?,?"
_OPEN = (IncidentState.SUSPECTED, IncidentState.CONFIRMED)


class IncidentStore:
    """Writes return once committed; everything raises StoreError."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put(self, change: Transition) -> None:
        """What an incident has become: the newest change is what it is now, the others are its history."""
        values = [
            change.incident_id,
            change.resource.kind,
            change.resource.name,
            change.kind,
            change.state,
            change.fault_domain,
            change.raised_by,
            change.what,
            change.evidence,
            change.since,
            change.changed_at,
            change.step_ratio,
        ]
        await self._db.execute_all(
            (f"INSERT OR REPLACE INTO incidents VALUES ({_COLUMNS})", values),
            (f"INSERT INTO incident_transitions VALUES ({_COLUMNS})", values),
        )

    async def open(self) -> list[Transition]:
        """Incidents that are suspected or confirmed, oldest first."""
        rows = await self._db.read("SELECT * FROM incidents WHERE state IN (?, ?) ORDER BY since", list(_OPEN))
        return [_transition(row) for row in rows]

    async def changes(self, resource: Resource, since: float) -> list[Transition]:
        """What has changed on a resource since then (unix seconds), oldest first."""
        rows = await self._db.read(
            "SELECT * FROM incident_transitions WHERE resource_kind = ? AND resource = ? AND changed_at >= ? "
            "ORDER BY changed_at",
            [resource.kind, resource.name, since],
        )
        return [_transition(row) for row in rows]


def _transition(row: dict[str, Any]) -> Transition:
    return Transition(
        incident_id=row["incident_id"],
        resource=Resource(ResourceKind(row["resource_kind"]), row["resource"]),
        kind=IncidentKind(row["kind"]),
        state=IncidentState(row["state"]),
        raised_by=bytes(row["raised_by"]),
        what=row["what"],
        evidence=row["evidence"],
        since=row["since"],
        changed_at=row["changed_at"],
        step_ratio=row["step_ratio"],
    )
