"""Data that the bus between host and GPU had to send again."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._devices import device_readings
from pharoah_provider.agent.signals._signal import NARROW_BITS, AgentSignal

SIGNAL = AgentSignal(
    name="gpu_bus_replays",
    measures="replays of the bus between host and GPU",
    unit="replays",
    worse=WorseDirection.HIGHER,
    resource=Resource.HOST_LINK,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: device_readings(DeviceField.BUS_REPLAYS),
    counter_bits=NARROW_BITS,
    period_seconds=10.0,
)
