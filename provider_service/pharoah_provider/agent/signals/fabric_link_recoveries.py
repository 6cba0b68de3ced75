"""How often a link of the fabric had to train again, and could."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._links import fabric_counts
from pharoah_provider.agent.signals._signal import NARROW_BITS, AgentSignal

SIGNAL = AgentSignal(
    name="fabric_link_recoveries",
    measures="how often the link of a port of the fabric has recovered",
    unit="recoveries",
    worse=WorseDirection.HIGHER,
    resource=Resource.NETWORK,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: fabric_counts("link_error_recovery"),
    counter_bits=NARROW_BITS,
    period_seconds=10.0,
)
