"""Memory of the machine: what is available, processes that were killed for it, and errors that its controllers saw."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pharoah_provider.agent.signals._files import count, folders, text_of
from pharoah_provider.agent.signals._signal import NotOnThisNode, Reading

PROC = Path("/proc")
CONTROLLERS = Path("/sys/devices/system/edac/mc")
"""Counters of memory controllers (Documentation/ABI/testing/sysfs-devices-edac). Errors whose module of memory is not
known are in `ce_count` as well, so `ce_noinfo_count` is not added."""
CORRECTED = ("ce_count",)
UNCORRECTED = ("ue_count",)


def available_ratio() -> Iterator[Reading]:
    """The share of the memory that new work could have, as the kernel estimates it (proc_meminfo(5))."""
    lines = [line.split() for line in (text_of(PROC / "meminfo") or "").splitlines()]
    kilobytes = {words[0]: int(words[1]) for words in lines if len(words) >= 2 and words[1].isdecimal()}
    total, available = kilobytes.get("MemTotal:", 0), kilobytes.get("MemAvailable:")
    if not total or available is None:
        raise NotOnThisNode(f"{PROC / 'meminfo'}: says nothing of available memory")
    yield Reading(available / total)


def out_of_memory_kills() -> Iterator[Reading]:
    """Processes that the kernel has killed for want of memory, since the boot, in any control group."""
    for line in (text_of(PROC / "vmstat") or "").splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.strip().isdecimal():
            yield Reading(int(count))
            return
    raise NotOnThisNode(f"{PROC / 'vmstat'}: this kernel does not count oom_kill")


def controller_counts(names: tuple[str, ...]) -> Iterator[Reading]:
    """The sum of these counters of each memory controller, since its driver was loaded."""
    yield from count(folders(CONTROLLERS, "mc"), names, f"{CONTROLLERS}: no driver watches the memory (EDAC)")
