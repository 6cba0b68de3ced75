"""Health and settings of NVIDIA GPUs, where there are any. How busy they are is never read: that is use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple


class NvmlError(Exception):
    """NVML does not answer; the text is the reason."""


def gpu_values(read: Callable[[Any, Any], float | None]) -> dict[str, float]:
    """`read(nvml, handle)` for each GPU that has what it asks for. Raises NvmlError without a driver."""
    if (nvml := _nvml()) is None:
        raise NvmlError("no NVIDIA driver answers (NVML)")
    found = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            value = read(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
        except nvml.NVMLError:
            continue
        if value is not None:
            found[f"gpu{index}"] = value
    return found


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
    return DriverVersions(_text(driver), f"{version // 1000}.{version % 1000 // 10}")


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


def gpu_addresses() -> dict[str, str]:
    """The PCI address of each GPU, as `0000:3b:00`, to its name; empty without a driver."""
    addresses = gpu_texts(lambda nvml, gpu: _text(nvml.nvmlDeviceGetPciInfo(gpu).busId))
    return {_short_address(address): f"gpu{index}" for index, address in enumerate(addresses)}


def _short_address(address: str) -> str:
    """`00000000:3B:00.0` as the kernel log writes it: `0000:3b:00`."""
    return address.lower().partition(".")[0][-len("0000:3b:00") :]


def _text(value: Any) -> str:
    """NVML gives bytes in some releases and text in others."""
    return value.decode() if isinstance(value, bytes) else str(value)


@cache
def _nvml() -> Any:
    """The NVML module, initialised; None without an NVIDIA driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml
    except Exception:  # noqa: BLE001 - no module, no driver, no permission: no GPUs to report
        return None
