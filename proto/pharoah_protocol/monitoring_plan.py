"""Monitoring plans: how jobs of an archetype are monitored, sealed in 8 bytes of its verdict row.

A plan changes what the sidecar does locally: how many steps a window has, and how strongly a slowdown counts. The
provider could recognise an archetype by reports that follow a rare plan. So there are three plans, each is given to at
least five archetypes, and unknown bytes mean the plain plan. A provider that slows its own node and seals a false plan
can still learn which of the three plans a run follows (docs/exchange.md).
"""

from __future__ import annotations

from dataclasses import dataclass

PLAN_BYTES = 8
_VERSION = 1


@dataclass(frozen=True)
class MonitoringPlan:
    """How the sidecar turns the steps of a job into reported levels."""

    window_steps: int
    """A window has at least so many steps; noisy step times need more."""
    step_gain: float
    """Factor of the step level: larger for steady jobs, whose slowdowns mean more, and smaller for noisy ones."""

    def pack(self) -> bytes:
        """The bytes of a verdict row. Raises ValueError for a plan that is not one of the three."""
        return bytes([_VERSION, PLANS.index(self)]).ljust(PLAN_BYTES, b"\0")

    @classmethod
    def unpack(cls, data: bytes) -> MonitoringPlan:
        """The plain plan for unknown bytes: a provider must not mark a job with a plan that no other job has."""
        return next((plan for plan in PLANS if plan.pack() == data), PLAIN)


PLAIN = MonitoringPlan(window_steps=4, step_gain=1.0)
STEADY = MonitoringPlan(window_steps=4, step_gain=2.0)
RESTLESS = MonitoringPlan(window_steps=16, step_gain=0.5)
PLANS = (PLAIN, STEADY, RESTLESS)
