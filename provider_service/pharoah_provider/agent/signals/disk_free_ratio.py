"""How much space is left on the node's disks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._files import PROC
from pharoah_provider.agent.signals._signal import AgentSignal, Reading

KINDS = ("ext4", "xfs", "btrfs", "zfs", "overlay")
"""File systems of disks."""


def free(root: Path = PROC) -> Iterator[Reading]:
    """For each disk once."""
    seen: set[str] = set()
    try:
        lines = (root / "mounts").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        disk, folder, kind = line.split()[:3]
        if kind in KINDS and disk not in seen:
            seen.add(disk)
            try:
                of = os.statvfs(folder)
            except OSError:
                continue
            if of.f_blocks:
                yield Reading(of.f_bavail / of.f_blocks, Path(disk).name)


SIGNAL = AgentSignal(
    name="disk_free_ratio",
    measures="free space of a disk, of all",
    unit="ratio",
    worse=WorseDirection.LOWER,
    leaves_node=False,
    read=free,
    resource=Resource.STORAGE,
)
