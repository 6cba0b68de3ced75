"""Errors that the driver of the GPUs reports, as signals. `watching` says where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pharoah_provider.agent.signals._devices import device_names
from pharoah_provider.agent.signals._signal import NotOnThisNode, Reading
from pharoah_provider.agent.xid_catalogue import XidCause
from pharoah_provider.agent.xid_events import XidEvents

_events: XidEvents | None = None
_absent = "only an agent that runs follows the kernel's log"


@contextmanager
def watching(events: XidEvents | None, absent: str = "") -> Iterator[None]:
    """Read errors from `events` inside this scope, in all threads; without them, `absent` says why there are none."""
    global _events, _absent
    before = _events, _absent
    _events, _absent = events, absent or _absent
    try:
        yield
    finally:
        _events, _absent = before


def error_counts(*causes: XidCause) -> Iterator[Reading]:
    """Errors with one of these causes that the kernel's log has shown, of each GPU."""
    yield from _readings(lambda events, device: events.count(device, *causes))


def hardware_trouble() -> Iterator[Reading]:
    """1 for each GPU whose hardware has reported an error within the last hour, else 0."""
    yield from _readings(lambda events, device: float(events.in_trouble(device)))


def _readings(value: Callable[[XidEvents, str], float]) -> Iterator[Reading]:
    if (events := _events) is None:
        raise NotOnThisNode(_absent)
    events.read()
    if not (devices := events.devices() | set(device_names())):
        raise NotOnThisNode("no NVIDIA driver answers (NVML), and none has reported an error")
    for device in sorted(devices):
        yield Reading(value(events, device), device)
