"""Numbers in files of the kernel, for readers that take the folder of the files, so that a test can give its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pharoah_provider.agent.signals._signal import Reading

SYS, PROC = Path("/sys"), Path("/proc")
MOST_FILES = 4096
"""Files that one reader opens: a machine with 256 cores has as many."""


def number(path: Path) -> float | None:
    """The number in a file; None where there is none."""
    try:
        return float(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def summed(paths: Iterable[Path], device: str = "") -> Iterator[Reading]:
    """The sum of the numbers in files, where there is any."""
    numbers = [found for _, path in zip(range(MOST_FILES), paths, strict=False) if (found := number(path)) is not None]
    if numbers:
        yield Reading(sum(numbers), device)


def real_interfaces(root: Path = SYS) -> Iterator[Path]:
    """Network interfaces that are hardware: those that have a device."""
    yield from (path for path in sorted((root / "class/net").glob("*")) if (path / "device").exists())


def vmstat(name: str, root: Path = PROC) -> Iterator[Reading]:
    """One counter of the kernel's memory management."""
    try:
        lines = (root / "vmstat").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        key, _, value = line.partition(" ")
        if key == name:
            yield Reading(float(value))
