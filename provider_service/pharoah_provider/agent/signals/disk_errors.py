"""A disk has answered with errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._counters import increased_lately
from pharoah_provider.agent.signals._files import SYS
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal, Reading


def errors(root: Path = SYS) -> Iterator[Reading]:
    """For each disk that counts them; the numbers are hexadecimal."""
    for path in sorted((root / "block").glob("*/device/ioerr_cnt")):
        try:
            yield Reading(float(int(path.read_text(), 16)), path.parts[-3])
        except (OSError, ValueError):
            continue


SIGNAL = AgentSignal(
    name="disk_errors",
    measures="whether a disk answered with an error in the last minute",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=increased_lately(errors),
    resource=Resource.STORAGE,
)
