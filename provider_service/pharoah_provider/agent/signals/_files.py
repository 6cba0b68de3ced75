"""Files of the kernel: what a reader takes of them, with bounds on folders and bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from pharoah_provider.agent.signals._signal import NotOnThisNode, Reading, device_name

MAX_BYTES = 262_144
"""Bytes that are read of one file; the list of mounts of a node with hundreds of containers has about 100,000."""
MAX_FOLDERS = 64
"""Devices of one kind that are read: twice what the largest servers have of disks, ports or memory controllers."""


def text_of(path: Path | str) -> str | None:
    """What a file says; None where it cannot be read. Never waits for a writer."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _content(descriptor).decode(errors="replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _content(descriptor: int) -> bytes:
    """The first MAX_BYTES of a file. One read of a list of the kernel gives a page at most, as seq_file.c does for the
    mounts, of which a page has about 40."""
    content = b""
    while len(content) < MAX_BYTES and (piece := os.read(descriptor, MAX_BYTES - len(content))):
        content += piece
    return content


def number_of(path: Path | str) -> int | None:
    """The whole number that a file holds, decimal or with 0x; None where there is none."""
    try:
        return int((text_of(path) or "").strip(), 0)
    except ValueError:
        return None


def folders(root: Path, prefix: str = "", keep: Callable[[Path], bool] = lambda _: True) -> list[Path]:
    """Folders, and links to them, in `root` whose names begin with `prefix`, in the order of their names: the first
    MAX_FOLDERS that `keep` takes. A node of containers has more virtual devices than that."""
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if entry.name.startswith(prefix))
    except OSError:
        return []
    return list(islice((root / name for name in names if keep(root / name)), MAX_FOLDERS))


def is_hardware(device: Path) -> bool:
    """Whether a network card or a disk is a device of its own: virtual ones have no such link."""
    return (device / "device").exists()


MAX_MISSED = 10
"""Readings for which a file may be away before its device counts without it; ours."""
_missed: dict[Path, dict[str, int]] = {}
"""Folder to the files that were read there since the agent began, and for how many readings each was away since."""


def sum_readings(folder: Path, names: Iterable[str], device: str) -> Reading | None:
    """The sum of the numbers in those files that the folder has, as a reading of `device`; None when it has none.

    None also while one cannot be read that was there a moment ago: the sum of fewer would look like a counter that was
    reset, and the whole one after it like a burst. One that stays away is left out later, and the sum begins anew.
    """
    names = tuple(names)
    numbers = {name: number for name in names if (number := number_of(folder / name)) is not None}
    missed = _missed.setdefault(folder, {})
    for name in names:  # several threads may do this, each for a reader of its own
        if name in numbers:
            missed[name] = 0
        elif name in missed:
            missed[name] += 1
    if any(0 < missed.get(name, 0) <= MAX_MISSED for name in names) or not numbers:
        return None
    return Reading(sum(numbers.values()), device, len(numbers))


def count(devices: Iterable[Path], names: Iterable[str], absent: str) -> Iterator[Reading]:
    """The sum of the files `names` of each device that has one. Raises NotOnThisNode with `absent` if none has."""
    names, found = tuple(names), False
    for device in devices:
        if (reading := sum_readings(device, names, device_name(device.name))) is not None:
            found = True
            yield reading
    if not found:
        raise NotOnThisNode(absent)
