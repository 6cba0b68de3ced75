"""How full the memory of a GPU is."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._devices import device_readings
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="gpu_memory_used_ratio",
    measures="the share of the GPU's memory that is in use",
    unit="0 to 1",
    worse=WorseDirection.HIGHER,
    resource=Resource.MEMORY_CAPACITY,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    used_share=True,
    read=lambda: device_readings(DeviceField.MEMORY_USED_RATIO),
)
