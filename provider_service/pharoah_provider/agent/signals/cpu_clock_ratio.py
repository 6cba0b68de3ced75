"""The clock of the processors, relative to the highest one."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._processors import clock_ratio
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="cpu_clock_ratio",
    measures="the mean clock of the processors over their highest one",
    unit="0 to 1",
    worse=WorseDirection.LOWER,
    resource=Resource.COMPUTE,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    read=clock_ratio,
    period_seconds=10.0,
)
