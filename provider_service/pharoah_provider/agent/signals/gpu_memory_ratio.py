"""How full the memory of a GPU is."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._nvml import gpu_values
from pharoah_provider.agent.signals._signal import AgentSignal


def _value(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetMemoryInfo(gpu).used / nvml.nvmlDeviceGetMemoryInfo(gpu).total)


SIGNAL = AgentSignal(
    name="gpu_memory_ratio",
    measures="memory of the GPU that is in use, of all",
    unit="ratio",
    worse=WorseDirection.HIGHER,
    leaves_node=False,
    read=lambda: gpu_values(_value),
    resource=Resource.MEMORY_CAPACITY,
)
