"""One rank gets a signal that ends it."""

from __future__ import annotations

import os
import signal
import time

from pharoah_benchmarks.faults._fault import Dose, Fault, Place
from pharoah_benchmarks.micro import Resource


def _kill(place: Place) -> None:
    schedule = place.schedule
    time.sleep(max(0.0, schedule.began + schedule.onset_seconds - time.monotonic()))
    os.kill(place.pid, signal.Signals(int(schedule.dose)))


FAULT = Fault(
    name="rank_killed",
    help="one rank gets a signal at the onset, as from the out-of-memory killer (9), a segmentation fault (11) or a "
    "scheduler (15); the ramp has no effect",
    resource=Resource.COMPUTE,
    dose=Dose(unit="the number of the signal (signal(7))", least=1, most=15, examples=(9, 11), whole=True),
    beside=_kill,
    least_ranks=2,
)
