"""Time, as servers read it: passed in, so that tests and simulations need no sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _unix_seconds() -> float:
    return time.time()


def _seconds_since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@cache
def _boot_id() -> str:
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""


def _ignore(who: str, at: float) -> None:
    """What others say about the time has no use where no guard listens."""


@dataclass(frozen=True)
class Clock:
    """Seconds from several sources. A server reads `wall` of the clock that its `TimeGuard` gives out."""

    wall: Callable[[], float] = _unix_seconds
    """Unix seconds: for what is stored and what is compared with other machines."""
    steady: Callable[[], float] = time.monotonic
    """Seconds that never jump: for pauses and silences. They stand still while the machine is suspended."""
    since_boot: Callable[[], float] = _seconds_since_boot
    """Seconds since the machine started, which never jump and include the time in which it was suspended."""
    boot_id: Callable[[], str] = _boot_id
    """Another text after each start of the machine; empty where the kernel gives none."""
    stated: Callable[[str, float], None] = _ignore
    """Called with a node and the unix time that its agent has signed (`TimeGuard.note_stated_time`)."""
