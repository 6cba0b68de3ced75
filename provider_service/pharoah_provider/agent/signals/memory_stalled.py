"""Tasks of the node wait for memory."""

from __future__ import annotations

from collections.abc import Iterator

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._pressure import LAST_MINUTE, waiting
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal, Reading

STALLED_RATIO = 0.3
"""Share of the last minute in which some task waited for memory, from which on the node is in trouble."""


def _read() -> Iterator[Reading]:
    for stalled in waiting("memory", LAST_MINUTE):
        yield Reading(float(stalled.value > STALLED_RATIO))


SIGNAL = AgentSignal(
    name="memory_stalled",
    measures=f"whether some task waited for memory in more than {STALLED_RATIO:.0%} of the last minute",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    resource=Resource.MEMORY_CAPACITY,
    kind=SignalKind.GAUGE,
    leaves_node=True,
    read=_read,
)
