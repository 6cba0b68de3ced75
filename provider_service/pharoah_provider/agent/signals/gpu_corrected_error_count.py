"""Errors in the memory of a GPU that its error-correcting code has corrected."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._devices import device_readings
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="gpu_corrected_error_count",
    measures="corrected errors in the GPU's memory",
    unit="errors",
    worse=WorseDirection.HIGHER,
    resource=Resource.MEMORY_CAPACITY,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: device_readings(DeviceField.CORRECTED_ERRORS),
    period_seconds=10.0,
)
