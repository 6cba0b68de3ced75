"""How much the tasks of the node wait for a core."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._pressure import LAST_10_SECONDS, waiting
from pharoah_provider.agent.signals._signal import AgentSignal

SIGNAL = AgentSignal(
    name="cpu_waiting_ratio",
    measures="in how much of the last ten seconds some task waited for a core",
    unit="0 to 1",
    worse=WorseDirection.HIGHER,
    resource=Resource.COMPUTE,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    read=lambda: waiting("cpu", LAST_10_SECONDS),
)
