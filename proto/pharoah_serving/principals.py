"""Who calls: a role, a name, and the organisation it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

ROLES = ("tenant", "agent", "operator")


@dataclass(frozen=True)
class Principal:
    role: str
    name: str
    """Of a tenant: `organisation/account`, or the organisation alone."""

    @property
    def organisation(self) -> str:
        """Accounts are cheap, organisations are not: what must hold against many accounts counts by this."""
        return self.name.partition("/")[0]
