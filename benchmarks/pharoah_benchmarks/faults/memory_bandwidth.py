"""Another process copies memory."""

from __future__ import annotations

import os
import time

from pharoah_benchmarks.faults._fault import Dose, Fault, Place
from pharoah_benchmarks.micro import Resource

_BUFFER_BYTES = 64 << 20
"""More than the last-level cache that one core uses on today's servers (32 MB per chiplet, AMD EPYC 9004)."""
_CHUNK_BYTES = 4 << 20
"""One copy before the pace is looked at: half a millisecond at 8 GB/s."""
_GIGABYTE = 1e9


def _copy(place: Place) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    source, target = memoryview(bytearray(_BUFFER_BYTES)), memoryview(bytearray(_BUFFER_BYTES))
    schedule, at, owed = place.schedule, 0, 0.0
    last = time.monotonic()
    time.sleep(max(0.0, schedule.began + schedule.onset_seconds - last))
    while (now := time.monotonic()) - schedule.began < place.limit_seconds:
        owed += schedule.dose * _GIGABYTE * schedule.share(now) * (now - last)
        owed, last = min(owed, float(_BUFFER_BYTES)), now  # what the memory does not give is let go
        if owed < _CHUNK_BYTES:
            time.sleep(0.0005)
            continue
        target[at : at + _CHUNK_BYTES] = source[at : at + _CHUNK_BYTES]
        at = (at + _CHUNK_BYTES) % _BUFFER_BYTES
        owed -= _CHUNK_BYTES


FAULT = Fault(
    name="memory_bandwidth",
    help="a process on the last core of the cell copies memory that no cache holds; one process moves what one core "
    "can, and on a cell with a single core it takes CPU time as well",
    resource=Resource.MEMORY_BANDWIDTH,
    dose=Dose(unit="gigabytes per second that it copies, if it can", least=0.1, most=100.0, examples=(2.0, 20.0)),
    beside=_copy,
)
