"""Packets of the fabric that came out of their order, because others were lost."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._links import fabric_counts
from pharoah_provider.agent.signals._signal import NARROW_BITS, AgentSignal

SIGNAL = AgentSignal(
    name="fabric_sequence_errors",
    measures="packets that came out of order to a port of the fabric",
    unit="packets",
    worse=WorseDirection.HIGHER,
    resource=Resource.NETWORK,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: fabric_counts("out_of_sequence", "packet_seq_err"),
    counter_bits=NARROW_BITS,
    period_seconds=10.0,
)
