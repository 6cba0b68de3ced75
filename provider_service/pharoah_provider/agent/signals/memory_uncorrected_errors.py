"""Memory of the node has returned wrong data that could not be corrected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._counters import increased_lately
from pharoah_provider.agent.signals._files import SYS, summed
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal, Reading


def errors(root: Path = SYS) -> Iterator[Reading]:
    """What the memory controllers have counted (EDAC, docs.kernel.org)."""
    yield from summed(sorted((root / "devices/system/edac/mc").glob("mc*/ue_count")))


SIGNAL = AgentSignal(
    name="memory_uncorrected_errors",
    measures="whether the memory had an error in the last minute that could not be corrected",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=increased_lately(errors),
    resource=Resource.MEMORY_CAPACITY,
)
