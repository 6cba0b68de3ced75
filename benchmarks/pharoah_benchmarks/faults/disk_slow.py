"""Another process keeps the disk busy."""

from __future__ import annotations

import os
import time

from pharoah_benchmarks.faults._checkpoints import Checkpoints
from pharoah_benchmarks.faults._fault import Dose, Fault, Place
from pharoah_benchmarks.micro import Resource

_FILE_BYTES = 64 << 20
"""The file that is written again and again; it never grows."""
_CHUNK_BYTES = 4 << 20


def _write(place: Place) -> None:
    schedule, content, owed, at = place.schedule, os.urandom(_CHUNK_BYTES), 0.0, 0
    last = time.monotonic()
    time.sleep(max(0.0, schedule.began + schedule.onset_seconds - last))
    with (place.folder / "disk_slow").open("wb", buffering=0) as file:
        while (now := time.monotonic()) - schedule.began < place.limit_seconds:
            owed = min(owed + schedule.dose * 1e6 * schedule.share(now) * (now - last), float(_FILE_BYTES))
            last = now
            if owed < _CHUNK_BYTES:
                time.sleep(0.001)
                continue
            os.pwrite(file.fileno(), content, at)
            os.fdatasync(file.fileno())
            at = (at + _CHUNK_BYTES) % _FILE_BYTES
            owed -= _CHUNK_BYTES


FAULT = Fault(
    name="disk_slow",
    help="the cell writes and syncs a checkpoint of 1 MiB after each step, also before the onset; then another process "
    "writes and syncs a file of 64 MiB beside it. Nothing happens where the scratch folder is in memory",
    resource=Resource.STORAGE,
    dose=Dose(unit="megabytes per second that it writes, if it can", least=1, most=10_000, examples=(50, 2000)),
    inside=lambda place: Checkpoints(place.folder),
    beside=_write,
)
