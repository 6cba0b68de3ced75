"""A disk accepts no more writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._files import PROC
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal, Reading

KINDS = ("ext4", "xfs", "btrfs")
"""File systems that the kernel mounts read-only when their disk fails."""


def read_only() -> Callable[[], Iterator[Reading]]:
    """A reader of trouble: a file system that could be written when it was first seen, and cannot be now."""
    writable: set[str] = set()

    def read(root: Path = PROC) -> Iterator[Reading]:
        try:
            lines = (root / "mounts").read_text().splitlines()
        except OSError:
            return
        for line in lines:
            disk, folder, kind, options = line.split()[:4]
            if kind not in KINDS:
                continue
            if "rw" in options.split(","):
                writable.add(folder)
            if folder in writable:
                yield Reading(float("ro" in options.split(",")), Path(disk).name)

    return read


SIGNAL = AgentSignal(
    name="disk_read_only",
    measures="whether a file system was mounted read-only, as the kernel does when its disk fails",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=read_only(),
    resource=Resource.STORAGE,
)
