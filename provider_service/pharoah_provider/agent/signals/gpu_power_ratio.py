"""How much power a GPU draws, of what it may."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._nvml import gpu_values
from pharoah_provider.agent.signals._signal import AgentSignal


def _value(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetPowerUsage(gpu) / nvml.nvmlDeviceGetEnforcedPowerLimit(gpu))


SIGNAL = AgentSignal(
    name="gpu_power_ratio",
    measures="power that the GPU draws, of its limit",
    unit="ratio",
    worse=WorseDirection.HIGHER,
    leaves_node=False,
    read=lambda: gpu_values(_value),
    resource=Resource.COMPUTE,
)
