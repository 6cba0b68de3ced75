"""Another process takes a part of a core's time."""

from __future__ import annotations

import time

from pharoah_benchmarks.faults._fault import Dose, Fault, Place
from pharoah_benchmarks.micro import Resource

PERIOD_SECONDS = 0.02
"""Debt of CPU time that the CPU stressor may build up; also how finely its share is spread."""
_BUFFER_BYTES = 4 << 20


def _stress(place: Place) -> None:
    """A copy loop that takes CPU time as a debt is paid: what cannot be had within a period is let go."""
    source, target = bytearray(_BUFFER_BYTES), bytearray(_BUFFER_BYTES)
    schedule, last, owed = place.schedule, time.monotonic(), 0.0
    time.sleep(max(0.0, schedule.began + schedule.onset_seconds - last))
    while (now := time.monotonic()) - schedule.began < place.limit_seconds:
        wanted = schedule.dose * schedule.share(now)
        owed = min(owed + wanted * (now - last), PERIOD_SECONDS)
        last = now
        before = time.process_time()
        while time.process_time() - before < owed:
            target[:] = source
        owed -= time.process_time() - before
        if owed < PERIOD_SECONDS / 2 and wanted < 1:  # a ramp begins with no share at all
            time.sleep(PERIOD_SECONDS / 4)


FAULT = Fault(
    name="cpu_share",
    help="a copy loop on the cores of the cell; a cell that has one core to itself becomes 1/(1 - dose) times slower, "
    "up to the half that a fair scheduler gives each of two",
    resource=Resource.COMPUTE,
    dose=Dose(unit="the share of a core's time that it wants", least=0.01, most=1.0, examples=(0.5, 1.0)),
    beside=_stress,
)
