"""A GPU has to be reset before it can stop using faulty rows of its memory."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._devices import in_trouble
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal

SIGNAL = AgentSignal(
    name="gpu_rows_to_remap",
    measures="whether rows of the GPU's memory wait for a reset to be replaced",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    resource=Resource.MEMORY_CAPACITY,
    kind=SignalKind.GAUGE,
    leaves_node=True,
    read=lambda: in_trouble(DeviceField.ROWS_TO_REMAP),
    period_seconds=10.0,
)
