"""What is known of a degraded cell while it trains. It stays when the cell is killed: it is in a file in memory that
the process which forked the cell reads in the end."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from pharoah_benchmarks.campaign.cell import CellResult
from pharoah_protocol import bounds
from pharoah_protocol.reports import RankWindows
from pharoah_protocol.telemetry_samples import (
    CPU_RATIO,
    DISK_FREE_RATIO,
    LOSS,
    MAX_SAMPLES,
    RESIDENT_BYTES,
    STEP_SECONDS,
    TelemetrySample,
)
from pharoah_protocol.windows import MEMORY_RATIO, STEP_RATIO, Window
from pharoah_system.bounded_reading import MESSAGE_LIMITS, UnreadableInput, parse_json
from pharoah_system.process_memory import resident_bytes

CELL_WINDOW_SECONDS = 0.5
CELL_BASELINE_WINDOWS = 4
"""Shorter and fewer windows than a run has: a degraded cell lasts for seconds."""
SAMPLE_SECONDS = 0.5
"""Time between two samples of a cell; one of its steps may last longer."""
_MAX_RECORD_BYTES = 8 << 20
_BEGAN, _WINDOW, _SAMPLE = "began_at", "window", "sample"
"""Keys of the lines of a record."""


class Record:
    """The record of one cell. Open it before the cell is forked; one of its ranks writes, the opener reads."""

    def __init__(self) -> None:
        self._file = os.memfd_create("pharoah-record")

    def __enter__(self) -> Record:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        os.close(self._file)

    def write(self, key: str, content: Any) -> None:
        """Append one line."""
        os.write(self._file, json.dumps({key: content}).encode() + b"\n")

    def add_to(self, result: CellResult) -> CellResult:
        """The result with what was recorded. Lines that cannot be read are left out: a script can write anything."""
        windows, telemetry, began_at = [], [], 0.0
        for line in self._lines():
            try:
                if _BEGAN in line:
                    began_at = float(line[_BEGAN])
                elif _WINDOW in line:
                    windows.append(Window.from_data(line[_WINDOW]))
                elif _SAMPLE in line:
                    telemetry.append(TelemetrySample.from_data(line[_SAMPLE]))
            except (TypeError, ValueError):
                continue
        kept = windows[: bounds.MAX_WINDOWS]
        return replace(result, windows=kept, telemetry=telemetry[: MAX_SAMPLES // 2], began_at=began_at)

    def _lines(self) -> Iterator[dict[str, Any]]:
        text = os.pread(self._file, _MAX_RECORD_BYTES, 0).decode(errors="replace")
        for line in text.splitlines():
            try:
                content = parse_json(line, "record", MESSAGE_LIMITS)
            except UnreadableInput:
                continue
            if isinstance(content, dict):
                yield content


class Recorder:
    """Watches the steps of a cell as the provider would watch a run: as windows of ratios, and with telemetry."""

    def __init__(self, record: Record, folder: Path, began: float, onset_seconds: float) -> None:
        """`folder` is on the disk of the cell. `began` is a time of `time.monotonic`; the onset is counted from it."""
        self._record, self._folder, self._began, self._onset = record, folder, began, onset_seconds
        self._windows = RankWindows(window_seconds=CELL_WINDOW_SECONDS, baseline_windows=CELL_BASELINE_WINDOWS)
        self._steps: list[float] = []
        self._sampled, self._cpu_seconds = began, time.process_time()
        record.write(_BEGAN, time.time() - (time.monotonic() - began))

    def step(self, step_seconds: float, loss: float) -> None:
        """One step has ended now."""
        now, resident = time.monotonic(), resident_bytes()
        for levels in self._windows.add([int(step_seconds * 1e9)], resident):
            step_ratio, memory_ratio = levels.ratios
            values = {STEP_RATIO: step_ratio, MEMORY_RATIO: memory_ratio}
            self._record.write(_WINDOW, asdict(Window(at_seconds=now - self._began, values=values)))
        self._steps.append(step_seconds)
        if now - self._sampled >= SAMPLE_SECONDS:
            self._sample(now, resident, loss)

    def _sample(self, now: float, resident: int, loss: float) -> None:
        cpu_seconds = time.process_time()
        disk = os.statvfs(self._folder)
        values = {
            STEP_SECONDS: median(self._steps),
            RESIDENT_BYTES: float(resident),
            CPU_RATIO: (cpu_seconds - self._cpu_seconds) / (now - self._sampled),
            DISK_FREE_RATIO: disk.f_bavail / max(1, disk.f_blocks),
        }
        if math.isfinite(loss):
            values[LOSS] = loss
        at = now - self._began - self._onset
        self._record.write(_SAMPLE, asdict(TelemetrySample(at_seconds=at, values=values)))
        self._steps, self._sampled, self._cpu_seconds = [], now, cpu_seconds
