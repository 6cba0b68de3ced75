"""Memory of the node has returned wrong data that could be corrected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._files import SYS, summed
from pharoah_provider.agent.signals._signal import AgentSignal, Reading


def errors(root: Path = SYS) -> Iterator[Reading]:
    """What the memory controllers have counted (EDAC, docs.kernel.org)."""
    yield from summed(sorted((root / "devices/system/edac/mc").glob("mc*/ce_count")))


SIGNAL = AgentSignal(
    name="memory_corrected_errors",
    measures="errors of memory that were corrected, since the node was started",
    unit="errors",
    worse=WorseDirection.HIGHER,
    leaves_node=False,
    read=errors,
    resource=Resource.MEMORY_CAPACITY,
)
