"""The memory of a GPU has returned wrong data since its driver was loaded."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._devices import in_trouble
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal

SIGNAL = AgentSignal(
    name="gpu_uncorrected_errors",
    measures="whether the GPU has had an error in memory that its error-correcting code could not correct",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    resource=Resource.MEMORY_CAPACITY,
    kind=SignalKind.GAUGE,
    leaves_node=True,
    read=lambda: in_trouble(DeviceField.UNCORRECTED_ERRORS),
    period_seconds=10.0,
)
