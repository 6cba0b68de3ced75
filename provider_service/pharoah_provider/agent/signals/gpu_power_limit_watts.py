"""The power that a GPU may take."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._devices import device_readings
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="gpu_power_limit_watts",
    measures="the power limit that is in force for the GPU",
    unit="W",
    worse=WorseDirection.LOWER,
    resource=Resource.COMPUTE,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    read=lambda: device_readings(DeviceField.POWER_LIMIT_WATTS),
    period_seconds=10.0,
)
