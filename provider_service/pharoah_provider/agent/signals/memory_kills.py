"""The kernel has ended processes of the node because memory was short."""

from __future__ import annotations

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._counters import increased_lately
from pharoah_provider.agent.signals._files import vmstat
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal

SIGNAL = AgentSignal(
    name="memory_kills",
    measures="whether processes were killed in the last minute because memory was short",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=False,
    read=increased_lately(lambda: vmstat("oom_kill")),
    resource=Resource.MEMORY_CAPACITY,
)
