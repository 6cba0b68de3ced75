"""The power supply of a node has asked a GPU for less, by a wire."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import ThrottleReason
from pharoah_provider.agent.signals._devices import read_throttled
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal

SIGNAL = AgentSignal(
    name="gpu_power_brake",
    measures="whether the power supply has slowed the GPU down",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    resource=Resource.COMPUTE,
    kind=SignalKind.GAUGE,
    leaves_node=True,
    read=lambda: read_throttled(ThrottleReason.POWER_BRAKE),
)
