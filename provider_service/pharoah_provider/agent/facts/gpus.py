"""GPUs: driver, count, and the settings that change what they can do. Nothing here follows what runs on them."""

from __future__ import annotations

from typing import Any

from pharoah_provider.agent.facts._group import FactGroup, join_values
from pharoah_provider.agent.signals._nvml import driver_versions, gpu_texts


def _error_correction(nvml: Any, gpu: Any) -> str:
    now, _ = nvml.nvmlDeviceGetEccMode(gpu)
    return "on" if now else "off"


def _partitions(nvml: Any, gpu: Any) -> str:
    now, _ = nvml.nvmlDeviceGetMigMode(gpu)
    return "on" if now else "off"


def _power_limit(nvml: Any, gpu: Any) -> str:
    return str(nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) // 1000)


def _clock_limits(nvml: Any, gpu: Any) -> str:
    """The highest clocks of the processors and of the memory. The clocks of now follow what runs."""
    kinds = (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM)
    return "/".join(str(nvml.nvmlDeviceGetMaxClockInfo(gpu, kind)) for kind in kinds)


def _bus(nvml: Any, gpu: Any) -> str:
    """The width is the one in use, because a link that has lost lanes is slow; the generation falls with the load and
    is the highest one."""
    generation = nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)
    return f"generation {generation}, {nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu)} lanes"


_most_links: dict[str, int] = {}
"""PCI address of a GPU to its links."""


def _links(nvml: Any, gpu: Any) -> str:
    """The most links of the GPU that were up at once since the agent began: they come up minutes after the driver, and
    one that is down for a moment does not make another node."""
    states = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states.append(bool(nvml.nvmlDeviceGetNvLinkState(gpu, link)))
        except nvml.NVMLError:
            break
    if not states:
        return ""
    place = str(nvml.nvmlDeviceGetPciInfo(gpu).busId)
    _most_links[place] = max(sum(states), _most_links.get(place, 0))
    return f"{_most_links[place]} links"


def _read() -> dict[str, str]:
    driver, toolkit = driver_versions()
    count = len(gpu_texts(lambda *_: "1"))
    return {
        "gpu_driver": driver,
        "gpu_toolkit": toolkit,
        "gpu_count": str(count) if count else "",
        "gpu_error_correction": join_values(gpu_texts(_error_correction)),
        "gpu_partitions": join_values(gpu_texts(_partitions)),
        "gpu_power_limit_watts": join_values(gpu_texts(_power_limit)),
        "gpu_clock_limits_mhz": join_values(gpu_texts(_clock_limits)),
        "gpu_bus": join_values(gpu_texts(_bus)),
        "gpu_links": join_values(gpu_texts(_links)),
    }


FACTS = FactGroup(
    name="gpus",
    help="driver and its CUDA version, count, error correction, partitions, limits of power and clocks, bus and links "
    "(NVML, without a context on a GPU)",
    facts=(
        "gpu_driver",
        "gpu_toolkit",
        "gpu_count",
        "gpu_error_correction",
        "gpu_partitions",
        "gpu_power_limit_watts",
        "gpu_clock_limits_mhz",
        "gpu_bus",
        "gpu_links",
    ),
    read=_read,
)
