"""Pages of an older GPU's memory that were taken out of use."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._devices import device_readings
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="gpu_retired_pages",
    measures="pages of the GPU's memory that were taken out of use",
    unit="pages",
    worse=WorseDirection.HIGHER,
    resource=Resource.MEMORY_CAPACITY,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: device_readings(DeviceField.RETIRED_PAGES),
    period_seconds=10.0,
)
