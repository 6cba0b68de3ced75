"""A core was slowed down because it was too hot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._counters import increased_lately
from pharoah_provider.agent.signals._files import SYS, summed
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal, Reading


def throttles(root: Path = SYS) -> Iterator[Reading]:
    """How often cores were throttled."""
    yield from summed(sorted((root / "devices/system/cpu").glob("cpu*/thermal_throttle/core_throttle_count")))


SIGNAL = AgentSignal(
    name="cpu_throttled",
    measures="whether cores were slowed down in the last minute because they were too hot",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=increased_lately(throttles),
    resource=Resource.COMPUTE,
)
