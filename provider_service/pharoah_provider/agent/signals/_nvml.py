"""Health and settings of NVIDIA GPUs, where there are any. How busy they are is never read: that is use.

A driver with a sick GPU may hang. Each question is asked in a thread of its own, so whoever asks goes on without GPUs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pharoah_system.own_thread import begin_in_own_thread

log = logging.getLogger("pharoah.agent")

RETRY_SECONDS = 60.0
"""How long a driver that does not answer is left alone: it may be loaded minutes after the agent has started."""
DRIVER = Path("/proc/driver/nvidia")
"""It exists while the driver is loaded, whether NVML answers or not."""
ANSWER_SECONDS = 10.0
"""How long one question may take; ours. NVML answers within milliseconds, and takes seconds for each GPU when it wakes
GPUs whose driver keeps no state between users (persistence mode)."""
Value = TypeVar("Value")
_NO_DRIVER = "no NVIDIA driver answers (NVML)"


class NvmlError(Exception):
    """NVML does not answer; the text is the reason."""


def gpu_values(read: Callable[[Any, Any], Value | None]) -> dict[str, Value]:
    """`read(nvml, handle)` for each GPU that has what it asks for. Raises NvmlError without a driver."""

    def read_all(nvml: Any) -> dict[str, Value]:
        found = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                value = read(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
            except nvml.NVMLError:
                continue
            if value is not None:
                found[_name(index)] = value
        return found

    return _answer(read_all)


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

    def read(nvml: Any) -> DriverVersions:
        driver, version = nvml.nvmlSystemGetDriverVersion(), nvml.nvmlSystemGetCudaDriverVersion_v2()
        return DriverVersions(_text(driver), f"{version // 1000}.{version % 1000 // 10}")

    try:
        return _answer(read)
    except NvmlError:
        return DriverVersions("", "")


def gpu_users() -> dict[str, set[int] | None]:
    """Ids of the processes that compute on each GPU of this node, None where it does not say; empty without a
    driver."""
    try:
        answered = gpu_values(
            lambda nvml, gpu: {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)}
        )
        count = _answer(lambda nvml: int(nvml.nvmlDeviceGetCount()))
    except NvmlError:
        return {}
    return {_name(index): answered.get(_name(index)) for index in range(count)}


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


def driver_hangs() -> bool:
    """Whether a question to the driver has not been answered in time, and is not answered yet."""
    return _questions.hangs


def _answer(ask: Callable[[Any], Value]) -> Value:
    """What `ask(nvml)` returns. Raises NvmlError where the driver does not answer, and where it refuses."""
    if _nvml is _driver and _driver.is_absent:  # to begin a thread for each signal costs more than its answer
        raise NvmlError(_NO_DRIVER)

    def ask_one() -> Value:
        if (nvml := _nvml()) is None:
            raise NvmlError(_NO_DRIVER)
        try:
            return ask(nvml)
        except nvml.NVMLError as error:
            _driver.close()  # the session itself may be broken, as after the driver was loaded again
            raise NvmlError(f"the NVIDIA driver refuses: {error}") from None

    return _questions.answer(ask_one)


class Questions:
    """Asks one question at a time. While one hangs, further ones fail at once. Any thread may ask."""

    def __init__(self, seconds: float = ANSWER_SECONDS) -> None:
        """`seconds`: how long an answer may take."""
        self._seconds = seconds
        self._asked: Future[Any] | None = None
        """The question that was not answered in time."""
        self._lock = threading.Lock()

    @property
    def hangs(self) -> bool:
        """Whether a question was not answered in time, and is not answered yet."""
        asked = self._asked
        return asked is not None and not asked.done()

    def answer(self, ask: Callable[[], Value]) -> Value:
        """What `ask` returns or raises. Raises NvmlError when it takes too long."""
        with self._lock:
            if self.hangs:
                raise NvmlError("the NVIDIA driver hangs (NVML)")
            if self._asked is not None:
                log.warning("the NVIDIA driver answers again")
                self._asked = None
            try:
                asked = begin_in_own_thread(ask)
            except RuntimeError as error:  # no thread can be started
                raise NvmlError(f"the NVIDIA driver cannot be asked: {error}") from None
            try:
                return asked.result(self._seconds)
            except TimeoutError:
                self._asked = asked
                log.error("the NVIDIA driver has not answered for %.0f s: GPUs are not watched", self._seconds)
                raise NvmlError("the NVIDIA driver hangs (NVML)") from None


_questions = Questions()


@cache
def _warn_once(text: str) -> None:
    log.warning("%s", text)


def _initialise() -> Any:
    """The NVML module; None without an NVIDIA driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml
    except Exception as error:  # noqa: BLE001 - no module, no driver, no permission: no GPUs to report
        if DRIVER.exists():
            _warn_once(f"the NVIDIA driver is loaded, and NVML does not start: {type(error).__name__}: {error}")
        return None


@dataclass
class Driver:
    """The driver of this node. One that does not answer is asked again after RETRY_SECONDS. Any thread may call it."""

    start: Callable[[], Any] = _initialise
    clock: Callable[[], float] = time.monotonic
    _module: Any = field(default=None, init=False)
    _asked_at: float = field(default=-inf, init=False)
    _failed: bool = field(default=False, init=False)
    """Whether the last attempt to start it has ended without a driver."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __call__(self) -> Any:
        """The NVML module, initialised; None while there is no driver."""
        with self._lock:
            if self._module is None and self.clock() - self._asked_at >= RETRY_SECONDS:
                self._asked_at, self._failed = self.clock(), False
                self._module = self.start()
                self._failed = self._module is None
            return self._module

    @property
    def is_absent(self) -> bool:
        """Whether there is no driver, and it is too early to ask for it again. Never waits."""
        return self._failed and self.clock() - self._asked_at < RETRY_SECONDS

    def close(self) -> None:
        """End the session with the driver; the next one begins RETRY_SECONDS after the last beginning at the
        earliest."""
        with self._lock:
            module, self._module = self._module, None
        if module is not None:
            with suppress(module.NVMLError):
                module.nvmlShutdown()


_driver = Driver()
_nvml: Callable[[], Any] = _driver
