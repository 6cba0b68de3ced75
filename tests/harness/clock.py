"""A clock that a test moves: time passes on all its sources, or the wall clock alone jumps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pharoah_serving.clock import Clock


@dataclass
class SimulatedClock:
    """All sources of one machine. `now` is the right time; the wall clock shows it plus `error`."""

    now: float = field(default_factory=time.time)
    """Unix seconds."""
    error: float = 0.0
    since_boot: float = 1000.0
    boot: int = 1

    @property
    def clock(self) -> Clock:
        """The sources as a server reads them."""
        return Clock(
            wall=lambda: self.now + self.error,
            steady=lambda: self.since_boot,
            since_boot=lambda: self.since_boot,
            boot_id=lambda: f"boot-{self.boot}",
        )

    def forward(self, seconds: float) -> None:
        """Time passes, on all sources."""
        self.now += seconds
        self.since_boot += seconds

    def reboot(self, off_seconds: float) -> None:
        """The machine is off for a while."""
        self.now += off_seconds
        self.since_boot = 10.0
        self.boot += 1


@dataclass
class OffsetClock:
    """The real clocks of this machine, with a wall clock that a test sets wrong."""

    error: float = 0.0
    """Seconds that are added to the wall clock."""

    @property
    def clock(self) -> Clock:
        """The sources as a server reads them."""
        return Clock(wall=lambda: time.time() + self.error)
