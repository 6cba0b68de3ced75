"""Health and settings of NVIDIA GPUs, where there are any. How busy they are is never read: that is use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

RETRY_SECONDS = 60.0
"""How long a driver that does not answer is left alone: it may be loaded minutes after the agent has started."""
DRIVER = Path("/proc/driver/nvidia")
"""It exists while the driver is loaded, whether NVML answers or not."""
Value = TypeVar("Value")


class NvmlError(Exception):
    """NVML does not answer; the text is the reason."""


def gpu_values(read: Callable[[Any, Any], Value | None]) -> dict[str, Value]:
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
            found[_name(index)] = value
    return found


def gpu_texts(read: Callable[[Any, Any], str]) -> list[str]:
    """`read(nvml, handle)` for each GPU that has what it asks for; none without a driver."""
    try:
        return list(gpu_values(read).values())
    except NvmlError:
        return []


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


def gpu_users() -> dict[str, set[int] | None]:
    """Ids of the processes that compute on each GPU of this node, None where it does not say; empty without a
    driver."""
    try:
        answered = gpu_values(
            lambda nvml, gpu: {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)}
        )
    except NvmlError:
        return {}
    return {_name(index): answered.get(_name(index)) for index in range(_nvml().nvmlDeviceGetCount())}


def gpu_processes() -> set[int]:
    """Ids of the processes that compute on any GPU of this node; empty on a node without GPUs.

    Raises NvmlError for a GPU that does not say which.
    """
    users = gpu_users()
    if not users and DRIVER.exists():
        raise NvmlError("the NVIDIA driver is loaded and does not answer (NVML)")
    found = set[int]()
    for device, processes in users.items():
        if processes is None:
            raise NvmlError(f"{device} does not say which processes compute on it")
        found |= processes
    return found


def gpu_addresses() -> dict[str, str]:
    """The PCI address of each GPU, as `0000:3b:00`, to its name; empty without a driver."""
    try:
        addresses = gpu_values(lambda nvml, gpu: _text(nvml.nvmlDeviceGetPciInfo(gpu).busId))
    except NvmlError:
        return {}
    return {_short_address(address): name for name, address in addresses.items()}


def _name(index: int) -> str:
    """The name of a GPU: NVML numbers them by their PCI address, and keeps the number of one that is lost."""
    return f"gpu{index}"


def _short_address(address: str) -> str:
    """`00000000:3B:00.0` as the kernel log writes it: `0000:3b:00`."""
    return address.lower().partition(".")[0][-len("0000:3b:00") :]


def _text(value: Any) -> str:
    """NVML gives bytes in some releases and text in others."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _initialised() -> Any:
    """The NVML module; None without an NVIDIA driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml
    except Exception:  # noqa: BLE001 - no module, no driver, no permission: no GPUs to report
        return None


@dataclass
class Driver:
    """The driver of this node. One that does not answer is asked again after RETRY_SECONDS. Any thread may call it."""

    start: Callable[[], Any] = _initialised
    clock: Callable[[], float] = time.monotonic
    _module: Any = field(default=None, init=False)
    _asked_at: float = field(default=-inf, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __call__(self) -> Any:
        """The NVML module, initialised; None while there is no driver."""
        with self._lock:
            if self._module is None and self.clock() - self._asked_at >= RETRY_SECONDS:
                self._asked_at = self.clock()
                self._module = self.start()
            return self._module


_nvml = Driver()
