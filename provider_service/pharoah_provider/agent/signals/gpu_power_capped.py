"""A GPU has reached its power limit. This follows what runs and stays on the node."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._device_fields import ThrottleReason
from pharoah_provider.agent.signals._devices import read_throttled
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="gpu_power_capped",
    measures="whether the power limit slows the GPU down",
    unit="1 while it does, else 0",
    worse=WorseDirection.HIGHER,
    resource=Resource.COMPUTE,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    read=lambda: read_throttled(ThrottleReason.POWER_CAP),
)
