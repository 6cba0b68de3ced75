"""Errors in the node's memory that were corrected."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._memory import CORRECTED, controller_counts
from pharoah_provider.agent.signals._signal import NARROW_BITS, AgentSignal

SIGNAL = AgentSignal(
    name="memory_corrected_errors",
    measures="corrected errors of a memory controller",
    unit="errors",
    worse=WorseDirection.HIGHER,
    resource=Resource.MEMORY_CAPACITY,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: controller_counts(CORRECTED),
    counter_bits=NARROW_BITS,
    period_seconds=10.0,
)
