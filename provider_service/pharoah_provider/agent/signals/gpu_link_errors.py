"""The links between the GPUs of the node had errors."""

from __future__ import annotations

from typing import Any

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._counters import increased_lately
from pharoah_provider.agent.signals._nvml import gpu_values
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal

LEAST_ERRORS = 100
"""In a minute. A healthy link repairs single errors."""


def _errors(nvml: Any, gpu: Any) -> float:
    """Replays, recoveries and checksum errors of all links that are up."""
    kinds = (nvml.NVML_NVLINK_ERROR_DL_REPLAY, nvml.NVML_NVLINK_ERROR_DL_RECOVERY, nvml.NVML_NVLINK_ERROR_DL_CRC_FLIT)
    links = [link for link in range(nvml.NVML_NVLINK_MAX_LINKS) if nvml.nvmlDeviceGetNvLinkState(gpu, link)]
    return float(sum(nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, link, kind) for link in links for kind in kinds))


SIGNAL = AgentSignal(
    name="gpu_link_errors",
    measures="whether the links between GPUs counted 100 errors or more in the last minute",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=increased_lately(lambda: gpu_values(_errors), LEAST_ERRORS),
    resource=Resource.NETWORK,
)
