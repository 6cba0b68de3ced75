"""The hardware has slowed a GPU down: it is too hot, or its power supply fails."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import ThrottleReason
from pharoah_provider.agent.signals._devices import read_throttled
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal

SIGNAL = AgentSignal(
    name="gpu_throttled",
    measures="whether the hardware has slowed the GPU down",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    resource=Resource.COMPUTE,
    kind=SignalKind.GAUGE,
    leaves_node=True,
    read=lambda: read_throttled(ThrottleReason.HARDWARE_SLOWDOWN),
)
