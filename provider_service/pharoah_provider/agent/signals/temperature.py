"""How hot the node is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._files import SYS, number
from pharoah_provider.agent.signals._signal import AgentSignal, Reading


def temperatures(root: Path = SYS) -> Iterator[Reading]:
    """For each zone."""
    for zone in sorted((root / "class/thermal").glob("thermal_zone*")):
        if (found := number(zone / "temp")) is not None:
            yield Reading(found / 1000, zone.name)


SIGNAL = AgentSignal(
    name="temperature",
    measures="temperature of a thermal zone",
    unit="degrees Celsius",
    worse=WorseDirection.HIGHER,
    leaves_node=False,
    read=temperatures,
    resource=Resource.COMPUTE,
)
