"""Health and settings of NVIDIA GPUs, where there are any. Power, clocks and temperature of now follow what runs and
are not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from pharoah_provider.agent.signals._signal import Reading


def gpu_readings(in_trouble: Callable[[Any, Any], bool]) -> Iterator[Reading]:
    """`in_trouble(nvml, handle)` for each GPU that has what it asks for."""
    if (nvml := _nvml()) is None:
        return
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            yield Reading(float(in_trouble(nvml, nvml.nvmlDeviceGetHandleByIndex(index))), f"gpu{index}")
        except nvml.NVMLError:
            continue


def gpu_texts(read: Callable[[Any, Any], str]) -> list[str]:
    """`read(nvml, handle)` for each GPU that has what it asks for."""
    if (nvml := _nvml()) is None:
        return []
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            found.append(read(nvml, nvml.nvmlDeviceGetHandleByIndex(index)))
        except nvml.NVMLError:
            continue
    return found


class DriverVersions(NamedTuple):
    """Versions of the driver; both are empty without one."""

    driver: str
    toolkit: str
    """The version of CUDA that the driver brings."""


def driver_versions() -> DriverVersions:
    """The versions of the driver of this node."""
    if (nvml := _nvml()) is None:
        return DriverVersions("", "")
    driver, version = nvml.nvmlSystemGetDriverVersion(), nvml.nvmlSystemGetCudaDriverVersion_v2()
    text = driver.decode() if isinstance(driver, bytes) else str(driver)
    return DriverVersions(text, f"{version // 1000}.{version % 1000 // 10}")


def gpu_users() -> dict[str, set[int]]:
    """Ids of the processes that compute on each GPU of this node; empty without an NVIDIA driver."""
    if (nvml := _nvml()) is None:
        return {}
    found: dict[str, set[int]] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        found[f"gpu{index}"] = {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    return found


def gpu_processes() -> set[int]:
    """Ids of the processes that compute on any GPU of this node; empty without an NVIDIA driver."""
    return set().union(*gpu_users().values())


@cache
def _nvml() -> Any:
    """The NVML module, initialised; None without an NVIDIA driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml
    except Exception:  # noqa: BLE001 - no module, no driver, no permission: no GPUs to report
        return None
