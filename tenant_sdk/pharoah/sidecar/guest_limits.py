"""What a tenant allows of micro-benchmarks that its own sidecar runs: consent, a budget, and memory that is left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from pharoah._settings import Settings
from pharoah_protocol.guest_probes import MAX_LIFE_SECONDS, GuestOrder

HOUR_SECONDS = 3600.0
MIN_FREE_BYTES = 1 << 30
"""What must be free: a process with torch and the buffers of a micro-benchmark takes less than half of it."""


def takes_orders(settings: Settings) -> bool:
    """Whether the tenant has agreed that its sidecar runs micro-benchmarks beside the job."""
    return settings.allow_beside_job and settings.guest_probe_seconds > 0


def refusal(order: GuestOrder, settings: Settings, left_seconds: float, free_bytes: int | None, now: float) -> str:
    """Why an order is not done now; empty when it may be.

    `left_seconds` are left of the budget, `free_bytes` of the memory, where that is known. `now` is in unix seconds.
    """
    if not takes_orders(settings):
        return "the tenant has not agreed"
    if not now <= order.expires_at <= now + MAX_LIFE_SECONDS:
        return "its time is over, or it is good for too long; is the clock of this machine right?"
    if order.longest_seconds > settings.probe_limit_seconds:
        return f"it may take {order.longest_seconds:g} s, and PHAROAH_PROBE_LIMIT_S is {settings.probe_limit_seconds:g}"
    if order.longest_seconds > left_seconds:
        return f"it may take {order.longest_seconds:g} s, and {left_seconds:.1f} s are left (PHAROAH_GUEST_PROBE_S)"
    if free_bytes is not None and free_bytes < MIN_FREE_BYTES:
        return f"{free_bytes >> 20} MiB of memory are free, and the job may need them"
    return ""


class _Used(NamedTuple):
    """A time in which a micro-benchmark ran; seconds of a clock that never jumps."""

    began_at: float
    ended_at: float


class HourlyBudget:
    """Seconds of any hour for which micro-benchmarks may run, the start of their process included."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._used: deque[_Used] = deque()
        """The times of the last hour, oldest first."""

    def get_remaining(self) -> float:
        """Seconds that are left now."""
        since = self._clock() - HOUR_SECONDS
        while self._used and self._used[0].ended_at <= since:
            self._used.popleft()
        return self._seconds - sum(used.ended_at - max(since, used.began_at) for used in self._used)

    def use(self, began_at: float) -> None:
        """A micro-benchmark has run from then until now."""
        self._used.append(_Used(began_at, self._clock()))
