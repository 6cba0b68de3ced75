"""Tasks of the node wait for memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pharoah_protocol.vocabulary import WorseDirection
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal, Reading

STALLED_RATIO = 0.3
"""Share of the last minute in which some task waited for memory, from which on the node is in trouble."""
PRESSURE = Path("/proc/pressure/memory")
"""The kernel's pressure stall information (docs.kernel.org/accounting/psi.html); some kernels have none."""


def _read() -> Iterator[Reading]:
    try:
        first = PRESSURE.read_text().split()
        stalled = float(first[2].removeprefix("avg60=")) / 100
    except (OSError, ValueError, IndexError):
        return
    yield Reading(float(stalled > STALLED_RATIO))


SIGNAL = AgentSignal(
    name="memory_stalled",
    measures=f"whether some task waited for memory in more than {STALLED_RATIO:.0%} of the last minute",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=_read,
)
