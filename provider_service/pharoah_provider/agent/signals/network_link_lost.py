"""A network link was lost, or came back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._counters import increased_lately
from pharoah_provider.agent.signals._files import SYS, number, real_interfaces
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal, Reading


def changes(root: Path = SYS) -> Iterator[Reading]:
    """How often each link was lost or found."""
    for interface in real_interfaces(root):
        if (count := number(interface / "carrier_changes")) is not None:
            yield Reading(count, interface.name)
    for port in sorted((root / "class/infiniband").glob("*/ports/*")):
        if (count := number(port / "counters/link_downed")) is not None:
            yield Reading(count, f"{port.parts[-3]}.{port.name}")


SIGNAL = AgentSignal(
    name="network_link_lost",
    measures="whether a network link was lost in the last minute",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=increased_lately(changes),
    resource=Resource.NETWORK,
)
