"""Incidents and their history."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.incident_states import INCIDENT_STATES, IncidentState
from pharoah_protocol.vocabulary import Resource
from pharoah_provider.domain import IncidentKind, Subject, SubjectKind, Transition
from pharoah_provider.storage.duckdb.database import Database, executing
from pharoah_provider.storage.duckdb.statements import statements

SQL = statements("incidents")


class DuckIncidentStore:
    """See `storage.base.IncidentStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put_transition(self, change: Transition) -> None:
        values = [
            change.incident_id,
            change.subject.kind,
            change.subject.name,
            change.kind,
            change.state,
            change.fault_domain,
            change.raised_by,
            change.what,
            change.evidence,
            change.since,
            change.changed_at,
            change.step_ratio,
            change.established,
            change.resource or "",
        ]
        await self._db.apply(executing(SQL["put_incident"], values), executing(SQL["put_transition"], values))

    async def open_incidents(self) -> list[Transition]:
        return [_transition(row) for row in await self._db.read(SQL["open_incidents"], [_list_closed_states()])]

    async def changes(self, subject: Subject, since: float) -> list[Transition]:
        rows = await self._db.read(SQL["changes"], [subject.kind, subject.name, since])
        return [_transition(row) for row in rows]

    async def all_changes(self, since: float) -> list[Transition]:
        return [_transition(row) for row in await self._db.read(SQL["all_changes"], [since])]

    async def histories(self, since: float) -> list[Transition]:
        return [_transition(row) for row in await self._db.read(SQL["histories"], [since, _list_closed_states()])]


def _list_closed_states() -> list[str]:
    return [state.name for state in INCIDENT_STATES if not state.is_open]


def _transition(row: dict[str, Any]) -> Transition:
    return Transition(
        incident_id=row["incident_id"],
        subject=Subject(SubjectKind(row["resource_kind"]), row["resource"]),
        kind=IncidentKind(row["kind"]),
        state=IncidentState.from_any_name(row["state"]),
        raised_by=bytes(row["raised_by"]),
        what=row["what"],
        evidence=row["evidence"],
        since=row["since"],
        changed_at=row["changed_at"],
        step_ratio=row["step_ratio"],
        established=row["established"],
        resource=Resource(row["short_resource"]) if row["short_resource"] else None,
    )
