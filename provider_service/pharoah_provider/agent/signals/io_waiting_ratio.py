"""How much the tasks of the node wait for a disk."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._pressure import LAST_10_SECONDS, waiting
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="io_waiting_ratio",
    measures="in how much of the last ten seconds some task waited for a disk",
    unit="0 to 1",
    worse=WorseDirection.HIGHER,
    resource=Resource.STORAGE,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    read=lambda: waiting("io", LAST_10_SECONDS),
)
