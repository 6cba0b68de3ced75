"""What a node tells about itself: CPU, memory, pressure, and NVIDIA GPUs where there are any."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

Sample = tuple[float, str, str, float]
"""Unix seconds, metric, device, value."""


@dataclass
class Telemetry:
    """Samples one node. `clock` gives unix seconds."""

    cpus: tuple[int, ...]
    clock: Callable[[], float] = time.time
    _gpus: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        psutil.cpu_percent(percpu=True)  # the first call only sets the mark
        self._gpus = _nvml()

    def sample(self) -> list[Sample]:
        """One reading of everything there is. What cannot be read has no row: absent beats wrong."""
        now = self.clock()
        return [(now, metric, device, value) for metric, device, value in self._readings()]

    def _readings(self) -> Iterator[tuple[str, str, float]]:
        busy = psutil.cpu_percent(percpu=True)
        for cpu in self.cpus:
            if cpu < len(busy):
                yield "cpu_busy_ratio", f"cpu{cpu}", busy[cpu] / 100
        memory = psutil.virtual_memory()
        yield "memory_available_ratio", "", memory.available / memory.total
        for kind in ("cpu", "memory", "io"):
            pressure = _pressure(kind)
            if pressure is not None:
                yield f"{kind}_pressure_ratio", "", pressure
        if self._gpus is not None:
            yield from _gpu_readings(self._gpus)


def _pressure(kind: str) -> float | None:
    """Share of the last 10 s in which some task waited for it (kernel PSI), where the kernel tells."""
    try:
        first = Path(f"/proc/pressure/{kind}").read_text().split()
        return float(first[1].removeprefix("avg10=")) / 100
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
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        readings: dict[str, Callable[[], float]] = {
            "gpu_busy_ratio": lambda h=handle: nvml.nvmlDeviceGetUtilizationRates(h).gpu / 100,  # type: ignore[misc]
            "gpu_memory_used_bytes": lambda h=handle: nvml.nvmlDeviceGetMemoryInfo(h).used,  # type: ignore[misc]
            "gpu_temperature_celsius": lambda h=handle: nvml.nvmlDeviceGetTemperature(h, 0),  # type: ignore[misc]
            "gpu_clock_hertz": lambda h=handle: nvml.nvmlDeviceGetClockInfo(h, 1) * 1e6,  # type: ignore[misc]
            "gpu_power_watts": lambda h=handle: nvml.nvmlDeviceGetPowerUsage(h) / 1000,  # type: ignore[misc]
        }
        for metric, read in readings.items():
            try:
                yield metric, f"gpu{index}", float(read())
            except nvml.NVMLError:
                continue
