"""One rank stands still for a while."""

from __future__ import annotations

import os
import signal
import time

from pharoah_benchmarks.faults._fault import Dose, Fault, Place
from pharoah_benchmarks.micro import Resource


def _stop(place: Place) -> None:
    schedule = place.schedule
    time.sleep(max(0.0, schedule.began + schedule.onset_seconds - time.monotonic()))
    os.kill(place.pid, signal.SIGSTOP)
    try:
        time.sleep(schedule.dose)
    finally:
        os.kill(place.pid, signal.SIGCONT)


FAULT = Fault(
    name="rank_stopped",
    help="one rank gets SIGSTOP at the onset and SIGCONT later, as when a scheduler suspends it; a ramp has no effect",
    resource=Resource.COMPUTE,
    dose=Dose(unit="seconds that it is stopped", least=0.01, most=86_400, examples=(1.0, 600.0)),
    beside=_stop,
    least_ranks=2,
)
