"""Monitoring plans: how an archetype is best watched, sealed in the 16 bytes of its verdict row.

A plan changes what the sidecar does locally: how many steps a window has, how strongly a slowdown counts. The provider
would tell archetypes apart by reports that follow rare plans; so there are three, none is given to fewer than five
archetypes, and whatever is not one of them reads as the plain one. What a false plan could still tell a provider that
slows its own node is which of three it is: docs/exchange.md.
"""

from __future__ import annotations

from dataclasses import dataclass

PLAN_BYTES = 16
_VERSION = 1


@dataclass(frozen=True)
class MonitoringPlan:
    window_steps: int
    """Least steps of a window: noisy step times need more."""
    step_gain: float
    """What the pooled model's coefficient of slowdown is multiplied by: steady jobs speak sooner, noisy ones later."""

    def pack(self) -> bytes:
        """Raises ValueError for a plan that is none of the three."""
        return bytes([_VERSION, PLANS.index(self)]).ljust(PLAN_BYTES, b"\0")

    @classmethod
    def unpack(cls, data: bytes) -> MonitoringPlan:
        """The plain plan for whatever is none: a provider must not mark a job by a plan nobody else has."""
        return next((plan for plan in PLANS if plan.pack() == data), PLAIN)


PLAIN, STEADY, RESTLESS = PLANS = MonitoringPlan(4, 1.0), MonitoringPlan(4, 2.0), MonitoringPlan(16, 0.5)
