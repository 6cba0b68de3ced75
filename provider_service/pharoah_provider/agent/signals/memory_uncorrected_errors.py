"""The memory of the node has returned wrong data since its driver was loaded."""

from __future__ import annotations

from collections.abc import Iterator

from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._memory import UNCORRECTED, controller_counts
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal, Reading


def _read() -> Iterator[Reading]:
    for controller in controller_counts(UNCORRECTED):
        yield Reading(float(controller.value > 0), controller.device)


SIGNAL = AgentSignal(
    name="memory_uncorrected_errors",
    measures="whether a memory controller of the node has seen an error that could not be corrected",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    resource=Resource.MEMORY_CAPACITY,
    kind=SignalKind.GAUGE,
    leaves_node=True,
    read=_read,
    period_seconds=10.0,
)
