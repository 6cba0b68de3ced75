"""How fast the cores of the node run, of what they can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._files import SYS, number
from pharoah_provider.agent.signals._signal import AgentSignal, Reading


def frequencies(root: Path = SYS) -> Iterator[Reading]:
    """The mean over the cores."""
    ratios = []
    for folder in sorted((root / "devices/system/cpu").glob("cpu*/cpufreq")):
        now, most = number(folder / "scaling_cur_freq"), number(folder / "cpuinfo_max_freq")
        if now is not None and most:
            ratios.append(now / most)
    if ratios:
        yield Reading(sum(ratios) / len(ratios))


SIGNAL = AgentSignal(
    name="cpu_frequency_ratio",
    measures="frequency of the cores over their highest one, the mean",
    unit="ratio",
    worse=WorseDirection.LOWER,
    leaves_node=False,
    read=frequencies,
    resource=Resource.COMPUTE,
)
