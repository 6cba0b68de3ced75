"""A GPU has to be reset before it can stop using faulty rows of its memory."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._nvml import gpu_readings
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal


def _in_trouble(nvml: Any, gpu: Any) -> bool:
    _, _, pending, _ = nvml.nvmlDeviceGetRemappedRows(gpu)
    return bool(pending)


SIGNAL = AgentSignal(
    name="gpu_rows_to_remap",
    measures="whether rows of the GPU's memory wait for a reset to be replaced",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=lambda: gpu_readings(_in_trouble),
    resource=Resource.MEMORY_CAPACITY,
)
