"""Errors of a link of the fabric beyond its own threshold, and buffers that have overrun."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._links import fabric_counts
from pharoah_provider.agent.signals._signal import NARROW_BITS, AgentSignal

SIGNAL = AgentSignal(
    name="fabric_integrity_errors",
    measures="integrity errors and overrun buffers of a port of the fabric",
    unit="errors",
    worse=WorseDirection.HIGHER,
    resource=Resource.NETWORK,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: fabric_counts("local_link_integrity_errors", "excessive_buffer_overrun_errors"),
    counter_bits=NARROW_BITS,
    period_seconds=10.0,
)
