"""How often the processors were slowed down because they were too hot."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._processors import throttle_count
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="cpu_throttle_count",
    measures="how often processors were slowed down because they were too hot",
    unit="times",
    worse=WorseDirection.HIGHER,
    resource=Resource.COMPUTE,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=throttle_count,
    period_seconds=10.0,
)
