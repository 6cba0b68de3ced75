"""A caller of a service: its role, its name, and the organisation it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from pharoah_protocol.vocabulary import Role


@dataclass(frozen=True)
class Principal:
    """A caller, as its certificate or token names it."""

    role: Role
    name: str
    """`organisation/account` or the organisation alone for a tenant; the node for an agent."""

    @property
    def organisation(self) -> str:
        """Accounts are cheap, organisations are not: limits that must hold against many accounts count by this."""
        return self.name.partition("/")[0]

    @property
    def counted_as(self) -> Principal:
        """Whose calls at once are counted together: a tenant's organisation, or the caller itself."""
        return Principal(self.role, self.organisation) if self.role is Role.TENANT else self
