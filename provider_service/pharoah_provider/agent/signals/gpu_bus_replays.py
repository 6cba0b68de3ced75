"""Data between the host and a GPU had to be sent again."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._counters import increased_lately
from pharoah_provider.agent.signals._nvml import gpu_values
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal

LEAST_REPLAYS = 100
"""In a minute. A healthy connection replays single packets."""


def _value(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetPcieReplayCounter(gpu))


SIGNAL = AgentSignal(
    name="gpu_bus_replays",
    measures="whether data between host and GPU had to be sent again 100 times or more in the last minute",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=increased_lately(lambda: gpu_values(_value), LEAST_REPLAYS),
    resource=Resource.HOST_LINK,
)
