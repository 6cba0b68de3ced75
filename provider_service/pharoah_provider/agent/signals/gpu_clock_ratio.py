"""How fast a GPU runs, of what it can."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._nvml import gpu_values
from pharoah_provider.agent.signals._signal import AgentSignal


def _value(nvml: Any, gpu: Any) -> float:
    return float(
        nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) / nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)
    )


SIGNAL = AgentSignal(
    name="gpu_clock_ratio",
    measures="clock of the GPU over its highest one",
    unit="ratio",
    worse=WorseDirection.LOWER,
    leaves_node=False,
    read=lambda: gpu_values(_value),
    resource=Resource.COMPUTE,
)
