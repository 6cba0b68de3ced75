"""The driver keeps a GPU below a temperature. This follows what runs and stays on the node."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import ThrottleReason
from pharoah_provider.agent.signals._devices import read_throttled
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal

SIGNAL = AgentSignal(
    name="gpu_software_thermal_slowdown",
    measures="whether the driver has slowed the GPU down because it is warm",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    resource=Resource.COMPUTE,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    read=lambda: read_throttled(ThrottleReason.SOFTWARE_THERMAL),
)
