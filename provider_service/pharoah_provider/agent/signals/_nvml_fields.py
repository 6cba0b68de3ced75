"""How NVML answers for each field of a GPU (`_device_fields.DeviceField`). Names are those of the NVML
reference.

A GPU, a driver or a partition that does not have something raises NVMLError, and the field of that GPU is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pharoah_provider.agent.signals._device_fields import DeviceField

Read = Callable[[Any, Any], float | None]
"""Takes the NVML module and the handle of a GPU; None where the GPU has no such thing."""

_MILLIWATTS = 1000


def _memory_errors(kind: str) -> Read:
    return lambda nvml, gpu: int(nvml.nvmlDeviceGetTotalEccErrors(gpu, getattr(nvml, kind), nvml.NVML_VOLATILE_ECC))


def _count_retired_pages(nvml: Any, gpu: Any) -> int:
    """Pages that older GPUs take out of use; newer ones replace rows instead."""
    causes = (
        nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
        nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    )
    return sum(len(nvml.nvmlDeviceGetRetiredPages(gpu, cause)) for cause in causes)


def _memory_used(nvml: Any, gpu: Any) -> float | None:
    """None where the GPU is partitioned, because each partition has a memory of its own."""
    if _is_partitioned(nvml, gpu):
        return None
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
    return memory.used / memory.total if memory.total else None


def _is_partitioned(nvml: Any, gpu: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(gpu)[0])
    except nvml.NVMLError:
        return False  # an older GPU has no partitions


def _link_counts(*names: str) -> Read:
    """The sum of counters over all links of a GPU. Reading them together is one call of the driver.

    There is no sum when the driver fails to read one that the GPU has: the next sum would seem to have grown by it.
    """

    def read(nvml: Any, gpu: Any) -> int | None:
        answers = nvml.nvmlDeviceGetFieldValues(gpu, [getattr(nvml, name) for name in names])
        known = [answer for answer in answers if answer.nvmlReturn != nvml.NVML_ERROR_NOT_SUPPORTED]
        if not known or any(answer.nvmlReturn != nvml.NVML_SUCCESS for answer in known):
            return None
        return sum(_value(nvml, answer) for answer in known)

    return read


def _value(nvml: Any, answer: Any) -> int:
    """The member of NVML's union of values that the answer says it has."""
    members = {
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    }
    return int(getattr(answer.value, members.get(answer.valueType, "ullVal")))


def _bus_width(nvml: Any, gpu: Any) -> float | None:
    most = nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)
    return nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu) / most if most else None


def _bus_speed(nvml: Any, gpu: Any) -> float | None:
    most = nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)
    return nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu) / most if most else None


NVML_FIELDS: Mapping[DeviceField, Read] = {
    DeviceField.CORRECTED_ERRORS: _memory_errors("NVML_MEMORY_ERROR_TYPE_CORRECTED"),
    DeviceField.UNCORRECTED_ERRORS: _memory_errors("NVML_MEMORY_ERROR_TYPE_UNCORRECTED"),
    DeviceField.REMAPPED_ROWS: lambda nvml, gpu: sum(nvml.nvmlDeviceGetRemappedRows(gpu)[:2]),
    DeviceField.ROWS_TO_REMAP: lambda nvml, gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[2],
    DeviceField.ROWS_NOT_REMAPPED: lambda nvml, gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[3],
    DeviceField.RETIRED_PAGES: _count_retired_pages,
    DeviceField.THROTTLE_REASONS: lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
    DeviceField.CLOCK_MHZ: lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    DeviceField.CLOCK_LIMIT_MHZ: lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
    DeviceField.POWER_WATTS: lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / _MILLIWATTS,
    DeviceField.POWER_LIMIT_WATTS: lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / _MILLIWATTS,
    DeviceField.TEMPERATURE_CELSIUS: lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    DeviceField.MEMORY_USED_RATIO: _memory_used,
    DeviceField.LINK_REPLAYS: _link_counts(
        "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"
    ),
    DeviceField.LINK_CRC_ERRORS: _link_counts(
        "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"
    ),
    DeviceField.BUS_REPLAYS: lambda nvml, gpu: nvml.nvmlDeviceGetPcieReplayCounter(gpu),
    DeviceField.BUS_WIDTH_RATIO: _bus_width,
    DeviceField.BUS_SPEED_RATIO: _bus_speed,
}
"""Every field has its reader; a test holds the two sets together."""
