"""Processes that the kernel has killed for want of memory."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._memory import out_of_memory_kills
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="out_of_memory_kills",
    measures="processes that the kernel has killed for want of memory",
    unit="processes",
    worse=WorseDirection.HIGHER,
    resource=Resource.MEMORY_CAPACITY,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=out_of_memory_kills,
)
