"""The kernel has made a file system read-only, as it does after errors. An administrator can do so as well, so it stays
on the node."""

from __future__ import annotations

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._disks import WRITES
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal

SIGNAL = AgentSignal(
    name="disk_read_only",
    measures="whether a file system has become read-only since the agent began",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    resource=Resource.STORAGE,
    kind=SignalKind.GAUGE,
    leaves_node=False,
    read=WRITES.readings,
    period_seconds=10.0,
)
