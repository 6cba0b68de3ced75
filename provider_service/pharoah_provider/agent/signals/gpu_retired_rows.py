"""Rows of a GPU's memory were replaced because they had errors."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._nvml import gpu_values
from pharoah_provider.agent.signals._signal import AgentSignal


def _value(nvml: Any, gpu: Any) -> float:
    return float(sum(nvml.nvmlDeviceGetRemappedRows(gpu)[:2]))


SIGNAL = AgentSignal(
    name="gpu_retired_rows",
    measures="rows of the GPU's memory that were replaced",
    unit="rows",
    worse=WorseDirection.HIGHER,
    leaves_node=False,
    read=lambda: gpu_values(_value),
    resource=Resource.MEMORY_CAPACITY,
)
