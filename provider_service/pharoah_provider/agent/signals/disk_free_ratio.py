"""How much room the file systems of the node have."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._disks import free_ratios
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="disk_free_ratio",
    measures="the share of a file system that is free",
    unit="0 to 1",
    worse=WorseDirection.LOWER,
    resource=Resource.STORAGE,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    read=free_ratios,
    period_seconds=10.0,
)
