"""Errors in the node's memory that could not be corrected."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._memory import UNCORRECTED, controller_counts
from pharoah_provider.agent.signals._signal import NARROW_BITS, AgentSignal

SIGNAL = AgentSignal(
    name="memory_uncorrected_error_count",
    measures="errors of a memory controller that could not be corrected",
    unit="errors",
    worse=WorseDirection.HIGHER,
    resource=Resource.MEMORY_CAPACITY,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=lambda: controller_counts(UNCORRECTED),
    counter_bits=NARROW_BITS,
    period_seconds=10.0,
)
