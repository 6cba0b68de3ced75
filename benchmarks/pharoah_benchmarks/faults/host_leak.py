"""Memory of the process that grows and is never freed."""

from __future__ import annotations

from pharoah_benchmarks.faults._fault import Dose, Effect, Fault, Schedule
from pharoah_benchmarks.micro import Resource


class _Leak(Effect):
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._held: list[bytearray] = []
        self._size = 0

    def after_step(self) -> None:
        """Grow by what is owed. Raises MemoryError at the memory limit."""
        wanted = int(self._schedule.amount())
        if wanted > self._size:
            self._held.append(bytearray(b"\x01") * (wanted - self._size))  # written, so that it is resident
            self._size = wanted


FAULT = Fault(
    name="host_leak",
    help="the process allocates memory after each step, writes it and keeps it, until its memory limit",
    resource=Resource.MEMORY_CAPACITY,
    dose=Dose(unit="bytes per second", least=1e3, most=1e11, examples=(30e6, 120e6)),
    inside=lambda place: _Leak(place.schedule),
    room_bytes=400_000_000,
)
