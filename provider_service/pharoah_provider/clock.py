"""Time, as the services read it: passed in, so that tests and simulations need no sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """Seconds from two sources."""

    wall: Callable[[], float] = time.time
    """Unix seconds: for what is stored and what is compared with other machines."""
    steady: Callable[[], float] = time.monotonic
    """Seconds that never jump: for pauses and silences."""
