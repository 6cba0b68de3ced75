"""What a node tells about itself: trouble, not use. When a job computes, waits for files or pauses says which job it is
(`python -m evaluation privacy`), so how busy processors and disks are is not told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STALLED_RATIO = 0.3

Sample = tuple[float, str, str, float]
"""Unix seconds, metric, device, value."""


@dataclass
class Telemetry:
    """Samples one node. `clock` gives unix seconds."""

    clock: Callable[[], float] = time.time
    _gpus: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._gpus = _nvml()

    def sample(self) -> list[Sample]:
        """One reading of everything there is. What cannot be read has no row: absent beats wrong."""
        now = self.clock()
        return [(now, metric, device, value) for metric, device, value in self._readings()]

    def _readings(self) -> Iterator[tuple[str, str, float]]:
        if (stalled := _memory_pressure()) is not None:
            yield "memory_stalled", "", float(stalled > STALLED_RATIO)
        if self._gpus is not None:
            yield from _gpu_readings(self._gpus)


def _memory_pressure() -> float | None:
    """Share of the last minute in which some task waited for memory (kernel PSI), where the kernel tells."""
    try:
        first = Path("/proc/pressure/memory").read_text().split()
        return float(first[2].removeprefix("avg60=")) / 100
    except (OSError, ValueError, IndexError):
        return None


def _nvml() -> Any:
    """The NVML module, initialised; None without an NVIDIA driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml
    except Exception:  # noqa: BLE001 - no module, no driver, no permission: no GPUs to report
        return None


def _gpu_readings(nvml: Any) -> Iterator[tuple[str, str, float]]:
    """Health, not use: power, clocks and temperature follow what runs."""
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        readings: dict[str, Callable[[], float]] = {
            "gpu_throttled": lambda h=handle: bool(  # type: ignore[misc]
                nvml.nvmlDeviceGetCurrentClocksThrottleReasons(h) & nvml.nvmlClocksThrottleReasonHwSlowdown
            ),
            "gpu_uncorrected_errors": lambda h=handle: nvml.nvmlDeviceGetTotalEccErrors(h, 1, 0),  # type: ignore[misc]
            "gpu_rows_to_remap": lambda h=handle: nvml.nvmlDeviceGetRemappedRows(h)[2],  # type: ignore[misc]
        }
        for metric, read in readings.items():
            try:
                yield metric, f"gpu{index}", float(read())
            except nvml.NVMLError:
                continue
