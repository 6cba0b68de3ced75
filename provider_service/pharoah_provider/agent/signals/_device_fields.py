"""What is read of a GPU, whoever reads it."""

from __future__ import annotations

from enum import IntFlag, StrEnum


class DeviceField(StrEnum):
    """What a source says of a GPU. Counters count since the driver was loaded, unless a line says otherwise."""

    CORRECTED_ERRORS = "corrected_errors"
    UNCORRECTED_ERRORS = "uncorrected_errors"
    REMAPPED_ROWS = "remapped_rows"
    """Since the GPU was made."""
    ROWS_TO_REMAP = "rows_to_remap"
    """1 while a row waits for a reset."""
    ROWS_NOT_REMAPPED = "rows_not_remapped"
    """1 when a row could not be replaced."""
    RETIRED_PAGES = "retired_pages"
    """Since the GPU was made."""
    THROTTLE_REASONS = "throttle_reasons"
    """Bits of ThrottleReason."""
    CLOCK_MHZ = "clock_mhz"
    """The clock of its processors now."""
    CLOCK_LIMIT_MHZ = "clock_limit_mhz"
    POWER_WATTS = "power_watts"
    POWER_LIMIT_WATTS = "power_limit_watts"
    TEMPERATURE_CELSIUS = "temperature_celsius"
    MEMORY_USED_RATIO = "memory_used_ratio"
    LINK_REPLAYS = "link_replays"
    """All links between GPUs together, with recoveries."""
    LINK_CRC_ERRORS = "link_crc_errors"
    BUS_REPLAYS = "bus_replays"
    BUS_WIDTH_RATIO = "bus_width_ratio"
    """Lanes in use over the most that card and slot can have."""
    BUS_SPEED_RATIO = "bus_speed_ratio"
    """Generation in use over the highest one."""


class ThrottleReason(IntFlag):
    """Why a GPU runs slower than it could: bits of nvmlClocksThrottleReasons (NVML reference, nvml.h)."""

    POWER_CAP = 0x04
    """Its power limit; this follows what runs."""
    HARDWARE_SLOWDOWN = 0x08
    """One of the two reasons of the hardware below, or both."""
    SOFTWARE_THERMAL = 0x20
    """The driver keeps it below a temperature."""
    HARDWARE_THERMAL = 0x40
    """The hardware finds itself too hot and cuts its clocks to half or less."""
    POWER_BRAKE = 0x80
    """The power supply has asked the hardware for less, by a wire."""
