"""Memory of a GPU has returned wrong data that could be corrected."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._nvml import gpu_values
from pharoah_provider.agent.signals._signal import AgentSignal


def _value(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetTotalEccErrors(gpu, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC))


SIGNAL = AgentSignal(
    name="gpu_corrected_errors",
    measures="errors of the GPU's memory that were corrected, since its driver was loaded",
    unit="errors",
    worse=WorseDirection.HIGHER,
    leaves_node=False,
    read=lambda: gpu_values(_value),
    resource=Resource.MEMORY_CAPACITY,
)
