"""The power supply has slowed a GPU down."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._nvml import gpu_readings
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal


def _in_trouble(nvml: Any, gpu: Any) -> bool:
    return bool(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu) & nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown)


SIGNAL = AgentSignal(
    name="gpu_power_braked",
    measures="whether the power supply of the node has slowed the GPU down",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=lambda: gpu_readings(_in_trouble),
    resource=Resource.COMPUTE,
)
