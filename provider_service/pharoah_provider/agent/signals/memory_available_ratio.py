"""How much memory new work could have."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._memory import available_ratio
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="memory_available_ratio",
    measures="the share of the node's memory that is available",
    unit="0 to 1",
    worse=WorseDirection.LOWER,
    resource=Resource.MEMORY_CAPACITY,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    read=available_ratio,
)
