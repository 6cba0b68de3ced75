"""Health and settings of GPUs, from their driver or from an exporter that asks it already.

The signals name a field; which source answers is the agent's choice (`pharoah-agent run --metrics-from`). A source
gives no use: neither how busy a device is nor which processes it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from pharoah_provider.agent.signals._device_fields import DeviceField, ThrottleReason
from pharoah_provider.agent.signals._nvml import NvmlError, gpu_values
from pharoah_provider.agent.signals._nvml_fields import NVML_FIELDS
from pharoah_provider.agent.signals._signal import NotOnThisNode, Reading


class DeviceSource(Protocol):
    """Where the values of GPUs come from."""

    def read(self, field: DeviceField) -> Mapping[str, float]:
        """Device to value, for those that have the field. Raises NotOnThisNode without a driver or an exporter."""
        ...


class NvmlSource:
    """The driver itself, through NVML. Opens no context on a GPU."""

    def read(self, field: DeviceField) -> Mapping[str, float]:
        """See DeviceSource."""
        try:
            return gpu_values(NVML_FIELDS[field])
        except NvmlError as error:
            raise NotOnThisNode(str(error)) from None


_source: DeviceSource = NvmlSource()


@contextmanager
def devices_from(source: DeviceSource) -> Iterator[None]:
    """Read GPUs from another source inside this scope, in all threads."""
    global _source
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before


def device_readings(field: DeviceField) -> Iterator[Reading]:
    """The field of each GPU that has it. Raises NotOnThisNode when none has."""
    yield from _readings(field, lambda value: value)


def read_throttled(reason: ThrottleReason) -> Iterator[Reading]:
    """1 for each GPU that runs slower for this reason, else 0."""
    yield from _readings(DeviceField.THROTTLE_REASONS, lambda value: float(bool(int(value) & reason)))


def in_trouble(field: DeviceField) -> Iterator[Reading]:
    """1 for each GPU of which the field is above zero, else 0."""
    yield from _readings(field, lambda value: float(value > 0))


def device_names() -> list[str]:
    """All GPUs that the source knows; none without a driver or an exporter."""
    try:
        return sorted(_source.read(DeviceField.THROTTLE_REASONS))
    except NotOnThisNode:
        return []


def _readings(field: DeviceField, shown: Callable[[float], float]) -> Iterator[Reading]:
    values = _source.read(field)
    if not values:
        raise NotOnThisNode("no GPU of this node has it")
    for device, value in sorted(values.items()):
        yield Reading(shown(value), device)
