"""The clock of a GPU's processors now."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._devices import device_readings
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="gpu_clock_mhz",
    measures="the clock of the GPU's processors",
    unit="MHz",
    worse=WorseDirection.LOWER,
    resource=Resource.COMPUTE,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    read=lambda: device_readings(DeviceField.CLOCK_MHZ),
)
