"""Disks and file systems: errors, free space, and file systems that no longer take writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pharoah_provider.agent.signals._files import MAX_FOLDERS, count, folders, is_hardware, text_of
from pharoah_provider.agent.signals._signal import NotOnThisNode, Reading, device_name

BLOCKS = Path("/sys/block")
MOUNTS = Path("/proc/self/mounts")
_NEVER_WRITTEN = {"iso9660", "squashfs", "erofs", "cramfs"}
"""File systems that nobody writes, such as images of packages."""
_FUSE, _FUSE_OF_A_DISK = "fuse", "fuseblk"
"""A program answers for file systems whose kind begins so (fuse(4)): it may hang, and its device, such as /dev/fuse, is
no disk. Only the second kind is on a disk."""

_READ_ONLY = {"ro", "emergency_ro", "shutdown"}
"""Options of a file system that takes no writes. Since Linux 6.12, ext4 says the last two after errors, and keeps
`rw`."""


class _Mount(NamedTuple):
    device: str
    folder: str
    read_only: bool


def _mounts() -> list[_Mount]:
    """File systems on disks of this machine, each once. What a server elsewhere holds is never asked: it may hang."""
    found: dict[str, _Mount] = {}
    for line in (text_of(MOUNTS) or "").splitlines():
        words = line.split()
        if len(words) >= 4 and words[0].startswith("/dev/") and _is_of_a_disk(words[2]):
            folder = words[1].replace("\\040", " ")
            read_only = not _READ_ONLY.isdisjoint(words[3].split(","))
            found.setdefault(words[0], _Mount(words[0], folder, read_only))
    return list(found.values())[:MAX_FOLDERS]


def _is_of_a_disk(kind: str) -> bool:
    """Whether somebody may write a file system of this kind, and no program answers for it that may hang."""
    return kind not in _NEVER_WRITTEN and (kind == _FUSE_OF_A_DISK or not kind.startswith(_FUSE))


def free_ratios() -> Iterator[Reading]:
    """The share of each file system that an ordinary user may still fill, 0 to 1."""
    found = False
    for mount in _mounts():
        try:
            state = os.statvfs(mount.folder)
        except OSError:
            continue
        if state.f_blocks:
            found = True
            yield Reading(state.f_bavail / state.f_blocks, _name(mount))
    if not found:
        raise NotOnThisNode(f"{MOUNTS}: this node has no file system on a disk of its own")


def error_counts() -> Iterator[Reading]:
    """Commands that a disk has ended with an error, since it was found (SCSI and SATA; NVMe disks do not count it)."""
    disks = folders(BLOCKS, keep=is_hardware)
    yield from count(disks, ("device/ioerr_cnt",), f"{BLOCKS}/*/device/ioerr_cnt: no disk of this node counts it")


class WriteWatch:
    """Which file systems the kernel has made read-only: those that took writes when they were seen first."""

    def __init__(self) -> None:
        self._took_writes: set[str] = set()

    def readings(self) -> Iterator[Reading]:
        """1 for each file system that has become read-only since the agent began, else 0."""
        if not (mounts := _mounts()):
            raise NotOnThisNode(f"{MOUNTS}: this node has no file system on a disk of its own")
        # Another volume may get the name of one that is gone, such as /dev/sdb1.
        self._took_writes &= {mount.device for mount in mounts}
        self._took_writes |= {mount.device for mount in mounts if not mount.read_only}
        for mount in mounts:
            yield Reading(float(mount.read_only and mount.device in self._took_writes), _name(mount))


def _name(mount: _Mount) -> str:
    return device_name(mount.device.removeprefix("/dev/"))


WRITES = WriteWatch()
"""The file systems of this node."""
