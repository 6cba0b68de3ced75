"""Errors in the memory of a GPU that its error-correcting code could not correct."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._devices import device_readings
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="gpu_uncorrected_error_count",
    measures="errors in the GPU's memory that could not be corrected",
    unit="errors",
    worse=WorseDirection.HIGHER,
    resource=Resource.MEMORY_CAPACITY,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: device_readings(DeviceField.UNCORRECTED_ERRORS),
    period_seconds=10.0,
)
