"""The memory of a GPU has returned wrong data since its driver was loaded."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._nvml import gpu_readings
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal


def _in_trouble(nvml: Any, gpu: Any) -> bool:
    return bool(
        nvml.nvmlDeviceGetTotalEccErrors(gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC) > 0
    )


SIGNAL = AgentSignal(
    name="gpu_uncorrected_errors",
    measures="whether the GPU has had an error in memory that its error-correcting code could not correct",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=lambda: gpu_readings(_in_trouble),
    resource=Resource.MEMORY_CAPACITY,
)
