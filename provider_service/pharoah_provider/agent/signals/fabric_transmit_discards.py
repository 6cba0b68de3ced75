"""Packets that a port of the fabric could not send."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._links import fabric_counts
from pharoah_provider.agent.signals._signal import NARROW_BITS, AgentSignal

SIGNAL = AgentSignal(
    name="fabric_transmit_discards",
    measures="packets that a port of the fabric has thrown away instead of sending them",
    unit="packets",
    worse=WorseDirection.HIGHER,
    resource=Resource.NETWORK,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: fabric_counts("port_xmit_discards"),
    counter_bits=NARROW_BITS,
    period_seconds=10.0,
)
