"""One rank is late in every step."""

from __future__ import annotations

import time

from pharoah_benchmarks.faults._fault import Dose, Effect, Fault, Schedule
from pharoah_benchmarks.micro import Resource


class _Late(Effect):
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def before_step(self) -> None:
        time.sleep(self._schedule.dose * self._schedule.share())


FAULT = Fault(
    name="rank_delay",
    help="one rank sleeps before each of its steps; the others wait for it in their next collective",
    resource=Resource.COMPUTE,
    dose=Dose(unit="seconds for each step", least=0.0001, most=600, examples=(0.02, 0.1)),
    inside=lambda place: _Late(place.schedule),
    least_ranks=2,
)
