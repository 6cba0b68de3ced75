"""Health and settings of NVIDIA GPUs, where there are any, from their driver. Reading them starts nothing on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from pharoah_provider.agent.signals._signal import Reading


def gpu_readings(in_trouble: Callable[[Any, Any], bool]) -> Iterator[Reading]:
    """1 for each GPU that is in trouble, else 0, as `in_trouble(nvml, handle)` states it."""
    return gpu_values(lambda nvml, gpu: float(in_trouble(nvml, gpu)))


def gpu_values(read: Callable[[Any, Any], float]) -> Iterator[Reading]:
    """`read(nvml, handle)` for each GPU that has what it asks for."""
    if (nvml := _nvml()) is None:
        return
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            yield Reading(read(nvml, nvml.nvmlDeviceGetHandleByIndex(index)), f"gpu{index}")
        except (nvml.NVMLError, ZeroDivisionError):
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


def gpu_of_bus(bus: str) -> str:
    """The GPU with a PCI address such as `0000:9b:00`; the address itself where no driver knows it."""
    if (nvml := _nvml()) is None:
        return bus
    for index in range(nvml.nvmlDeviceGetCount()):
        known = nvml.nvmlDeviceGetPciInfo(nvml.nvmlDeviceGetHandleByIndex(index)).busId
        text = known.decode() if isinstance(known, bytes) else str(known)
        if text.lower().lstrip("0").startswith(bus.lstrip("0")):
            return f"gpu{index}"
    return bus


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
