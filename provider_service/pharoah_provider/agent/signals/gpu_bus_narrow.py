"""The connection of a GPU with its host has fewer lanes than it could have."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._nvml import gpu_readings
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal


def _in_trouble(nvml: Any, gpu: Any) -> bool:
    return bool(nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu) < nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu))


SIGNAL = AgentSignal(
    name="gpu_bus_narrow",
    measures="whether the connection with the host has fewer lanes than it could have",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=lambda: gpu_readings(_in_trouble),
    resource=Resource.HOST_LINK,
)
