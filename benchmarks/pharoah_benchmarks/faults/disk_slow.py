"""Another process keeps the disk busy."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pharoah_benchmarks.faults._checkpoints import Checkpoints
from pharoah_benchmarks.faults._fault import Dose, Fault, Place
from pharoah_benchmarks.micro import Resource

_WRITERS = 8
"""Writes that the disk has to do at a time: with one, a checkpoint on a solid-state disk is hardly later."""
_FILE_BYTES = 8 << 20
"""Each writer has a file, which is written again and again and never grows."""
_CHUNK_BYTES = 1 << 20


def _write(place: Place) -> None:
    with ThreadPoolExecutor(_WRITERS) as writers:
        list(writers.map(lambda number: _keep_writing(place, place.folder / f"disk_slow.{number}"), range(_WRITERS)))


def _keep_writing(place: Place, path: Path) -> None:
    schedule, content, owed, at = place.schedule, os.urandom(_CHUNK_BYTES), 0.0, 0
    last = time.monotonic()
    time.sleep(max(0.0, schedule.began + schedule.onset_seconds - last))
    with path.open("wb", buffering=0) as file:
        while (now := time.monotonic()) - schedule.began < place.limit_seconds:
            owed += schedule.dose * 1e6 / _WRITERS * schedule.share(now) * (now - last)
            owed, last = min(owed, float(_FILE_BYTES)), now  # what the disk does not take is let go
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
    "with eight threads writes and syncs files of 8 MiB beside it. Nothing happens where the scratch folder is in "
    "memory",
    resource=Resource.STORAGE,
    dose=Dose(unit="megabytes per second that it writes, if it can", least=1, most=10_000, examples=(200, 5000)),
    inside=lambda place: Checkpoints(place.folder),
    beside=_write,
)
