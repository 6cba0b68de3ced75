"""Whether the bus between host and GPU has lost lanes. A slot may have fewer lanes than its card, so less than 1 alone
is no trouble."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._devices import device_readings
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="gpu_bus_width_ratio",
    measures="lanes of the GPU's bus in use, over the most that it can have",
    unit="0 to 1",
    worse=WorseDirection.LOWER,
    resource=Resource.HOST_LINK,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    read=lambda: device_readings(DeviceField.BUS_WIDTH_RATIO),
    period_seconds=10.0,
)
