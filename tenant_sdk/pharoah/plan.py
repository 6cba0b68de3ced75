"""Monitoring plans: how an archetype is best watched, sealed in the 16 bytes of its verdict row.

A plan changes what the courier does locally: how many steps a window has, how strongly a slowdown counts. The provider
would tell archetypes apart by reports that follow rare plans; so there are three, none is given to fewer than five
archetypes, and whatever is not one of them reads as the plain one. What a false plan could still tell a provider that
slows its own node is which of three it is: docs/exchange.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

WINDOW_STEPS = (4, 16, 64, 256)
STEP_GAINS = (0.5, 1.0, 2.0)
BENCHMARKS = ("gemm", "memory")
_FORMAT = struct.Struct(">BBBB12x")


@dataclass(frozen=True)
class Plan:
    window_steps: int = 4
    """Least steps of a window: noisy step times need more."""
    step_gain: float = 1.0
    """What the pooled model's coefficient of slowdown is multiplied by: steady jobs speak sooner, noisy ones later."""
    benchmarks: tuple[str, ...] = BENCHMARKS
    """Which micro-benchmarks can tell a slow node from a slow job, for this archetype."""

    def pack(self) -> bytes:
        chosen = sum(1 << at for at, name in enumerate(BENCHMARKS) if name in self.benchmarks)
        return _FORMAT.pack(1, WINDOW_STEPS.index(self.window_steps), STEP_GAINS.index(self.step_gain), chosen)

    @classmethod
    def unpack(cls, data: bytes) -> Plan:
        """The plain plan for whatever is none: a provider must not mark a job by a plan nobody else has."""
        try:
            version, steps, gain, chosen = _FORMAT.unpack(data)
            names = tuple(name for at, name in enumerate(BENCHMARKS) if chosen & 1 << at)
            plan = cls(WINDOW_STEPS[steps], STEP_GAINS[gain], names)
        except (struct.error, IndexError):
            return PLAIN
        return plan if version == 1 and plan in PLANS and plan.pack() == data else PLAIN


PLAIN, STEADY, NOISY = Plan(), Plan(step_gain=2.0), Plan(window_steps=16, step_gain=0.5)
PLANS = (PLAIN, STEADY, NOISY)
