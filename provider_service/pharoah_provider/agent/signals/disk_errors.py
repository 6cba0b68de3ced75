"""Commands that disks have ended with an error."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._disks import error_counts
from pharoah_provider.agent.signals._signal import NARROW_BITS, AgentSignal

SIGNAL = AgentSignal(
    name="disk_errors",
    measures="commands that a disk has ended with an error",
    unit="errors",
    worse=WorseDirection.HIGHER,
    resource=Resource.STORAGE,
    kind=SignalKind.COUNTER,
    leaves_node=False,
    read=error_counts,
    counter_bits=NARROW_BITS,
    period_seconds=10.0,
)
