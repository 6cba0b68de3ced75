"""Answers of the fabric that did not come in time."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._links import fabric_counts
from pharoah_provider.agent.signals._signal import NARROW_BITS, AgentSignal

SIGNAL = AgentSignal(
    name="fabric_timeouts",
    measures="acknowledgements that a port of the fabric has waited for in vain",
    unit="timeouts",
    worse=WorseDirection.HIGHER,
    resource=Resource.NETWORK,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: fabric_counts("local_ack_timeout_err"),
    counter_bits=NARROW_BITS,
    period_seconds=10.0,
)
