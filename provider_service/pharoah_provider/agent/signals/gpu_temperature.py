"""How hot a GPU is."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._nvml import gpu_values
from pharoah_provider.agent.signals._signal import AgentSignal


def _value(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))


SIGNAL = AgentSignal(
    name="gpu_temperature",
    measures="temperature of the GPU",
    unit="degrees Celsius",
    worse=WorseDirection.HIGHER,
    leaves_node=False,
    read=lambda: gpu_values(_value),
    resource=Resource.COMPUTE,
)
