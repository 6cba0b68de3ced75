"""How much memory programs can still get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._files import PROC
from pharoah_provider.agent.signals._signal import AgentSignal, Reading


def available(root: Path = PROC) -> Iterator[Reading]:
    """A share of the whole memory of the node."""
    try:
        lines = (root / "meminfo").read_text().splitlines()
    except OSError:
        return
    numbers = {name: float(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if rest}
    if "MemAvailable" in numbers and numbers.get("MemTotal"):
        yield Reading(numbers["MemAvailable"] / numbers["MemTotal"])


SIGNAL = AgentSignal(
    name="memory_available_ratio",
    measures="memory that programs can still get, of all",
    unit="ratio",
    worse=WorseDirection.LOWER,
    leaves_node=False,
    read=available,
    resource=Resource.MEMORY_CAPACITY,
)
